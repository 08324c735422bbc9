"""The forms in which models write tool calls, as pure functions: where one opens, and what a whole one says.

| form       | looks like                                                              | written by              |
|------------|-------------------------------------------------------------------------|-------------------------|
| header     | `{"name": "f", "arguments": {…}}`, `parameters` for `arguments`          | hermes, Qwen, Llama 3   |
| object     | the same with other keys, another order, or arguments as a text         | many                    |
| list       | `[{"name": "f", "arguments": {…}}, …]`                                  | Mistral                 |
| named      | `[TOOL_CALLS]f{…}`, `[TOOL_CALLS]f[ARGS]{…}`                             | Mistral, newer ones     |
| xml        | `<function=f><parameter=a>…</parameter></function>`, `<function=f>{…}</function>` | Qwen3-Coder, Llama |
| python     | `[f(a=1), g(b="x")]`                                                    | Llama 3.2 and 4         |

Any of them may stand in a code fence or between tags. Only functions that the request offers are calls.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import regex

from agentspec.calls import JsonCloser

Schemas = Mapping[str, Mapping[str, Any]]
"""The functions that may be called, by name, with their parameters' JSON Schemas."""

FENCE = "```"
_WRAPPERS = (
    r"<tool_call>|</tool_call>|<tools>|<\|python_tag\|>|<\|python_start\|>|\[TOOL_CALLS\]"
    r"|```(?:json|tool_call|tool_code|python|xml)?"
)
_NAME_KEYS = ("name", "function", "tool", "tool_name")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")
_NAMES, _ARGUMENTS = "|".join(_NAME_KEYS), "|".join(_ARGUMENT_KEYS)
_CLOSERS = r"</tool_call>|</tools>|<\|python_end\|>"
_ANY_PLAIN = r"[A-Za-z_][\w.-]*"
_ANY_QUOTED = r"(?:[^\"\\]|\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4}))+"
_WORDS = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class Call:
    """A whole call; `arguments` is the text of a JSON object."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Grammar:
    """The openings, compiled for the functions of a request.

    Attributes:
        header: everything before the object of the arguments, which can then be passed on as it arrives.
        held: the openings of calls that are read when they are whole.
        after: what may follow a call and belongs to it; `fenced`: after one that began with a code fence.
    """

    header: Any
    held: Any
    after: Any
    fenced: Any


@lru_cache(maxsize=64)
def grammar(names: tuple[str, ...] | None) -> Grammar:
    """Compile the openings for these functions; None: any name."""
    plain, quoted = _ANY_PLAIN, _ANY_QUOTED
    if names is not None:
        plain = "|".join(map(regex.escape, names))
        quoted = "|".join(regex.escape(_quoted(name)) for name in names)
    lead = rf"\s*(?:(?:{_WRAPPERS})\s*)*"
    tail = r"\s*,\s*\"(?:arguments|parameters)\"\s*:\s*\{"
    first = (
        rf"\"(?:{_NAMES})\"\s*:\s*(?:\{{|\"(?:{quoted})\")"
        rf"|\"(?:{_ARGUMENTS})\"\s*:\s*[\{{\"]"
        r"|\"type\"\s*:\s*\"function\""
    )
    forms = (
        rf"(?P<object>\{{\s*(?:{first}))",
        rf"(?P<list>\[\s*\{{\s*(?:{first}))",
        rf"(?P<xml><function=(?:{plain})>)",
        rf"(?P<python>\[\s*(?:{plain})\()",
    )
    named = rf"(?P<named>(?:{plain})\s*(?:\[ARGS\]\s*)?\{{)"
    return Grammar(
        header=regex.compile(rf"{lead}\{{\s*\"name\"\s*:\s*\"(?P<name>{quoted})\"{tail}", regex.DOTALL),
        held=regex.compile(rf"{lead}(?:{'|'.join(forms)})|\s*\[TOOL_CALLS\]\s*{named}"),
        after=regex.compile(rf"\s*(?:{_CLOSERS})"),
        fenced=regex.compile(rf"\s*(?:{_CLOSERS}|{FENCE})"),
    )


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)[1:-1]


def unquoted(name: str) -> str:
    """A name as it stands between quotes, read."""
    return str(json.loads(f'"{name}"', strict=False))


class Held:
    """A call that is read when it is whole. Text comes in by `feed`; what it says is told by `calls`."""

    def __init__(self, form: str, schemas: Schemas | None) -> None:
        self._form = form
        self._schemas = schemas
        self._closer = JsonCloser()
        self.text = ""
        """All that was fed."""
        self._seen = 0

    def feed(self, text: str) -> int | None:
        """Take more; once the call has closed: how many characters of all belong to it."""
        self.text += text
        match self._form:
            case "xml":
                return self._after("</function>", self._xml_closed)
            case "python":
                return self._after("]", lambda whole: read_python(whole, self._schemas) is not None)
            case "named":
                start = self.text.index("{") if self._seen == 0 else self._seen
                self._seen = len(self.text)
                return self._closed(self.text[start:], self.text.index("{"))
            case _:
                return self._closed(text, 0)

    def calls(self, text: str) -> list[Call] | None:
        """What a whole call (or a list of them) says; None: it is malformed, or calls something else."""
        match self._form:
            case "xml":
                return read_xml(text, self._schemas)
            case "python":
                return read_python(text, self._schemas)
            case "named":
                return read_named(text, self._schemas)
            case _:
                return read_json(text, self._schemas)

    def rest(self) -> list[Call] | None:
        """The answer ended by itself before the call was closed: what it says if only the end is missing."""
        ends = {"list": ("]", "}]"), "python": ("]",), "xml": ("</function>",), "object": ("}",), "named": ()}
        read = (self.calls(self.text + end) for end in ends[self._form])
        return next((calls for calls in read if calls is not None), None)

    def _closed(self, fresh: str, offset: int) -> int | None:
        return offset + self._closer.end if self._closer.feed(fresh) else None

    def _after(self, end: str, accepts: Callable[[str], bool]) -> int | None:
        while (at := self.text.find(end, self._seen)) >= 0:
            self._seen = at + len(end)
            if accepts(self.text[: self._seen]):
                return self._seen
        self._seen = max(self._seen, len(self.text) - len(end) + 1)
        return None

    @staticmethod
    def _xml_closed(text: str) -> bool:
        return text.rfind("<parameter=") <= text.rfind("</parameter>")


def read_json(text: str, schemas: Schemas | None) -> list[Call] | None:
    """One call as an object, or several as a list."""
    try:
        found = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    read = [_read_object(item, schemas) for item in (found if isinstance(found, list) else [found])]
    calls = [call for call in read if call is not None]
    return calls if calls and len(calls) == len(read) else None


def _read_object(found: Any, schemas: Schemas | None) -> Call | None:
    if not isinstance(found, dict):
        return None
    if isinstance(found.get("function"), dict):
        found = found["function"]
    name = next((found[key] for key in _NAME_KEYS if isinstance(found.get(key), str)), None)
    arguments = next((found[key] for key in _ARGUMENT_KEYS if key in found), None)
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return None
    return None if name is None else _call(name, arguments, schemas)


def _call(name: str, arguments: Any, schemas: Schemas | None) -> Call | None:
    """A call of a function that is offered, if the arguments are a JSON object."""
    if not isinstance(arguments, dict) or (schemas is not None and name not in schemas):
        return None
    try:
        return Call(name, json.dumps(arguments, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return None


def read_named(text: str, schemas: Schemas | None) -> list[Call] | None:
    """A name and the object of its arguments."""
    name, brace, rest = text.partition("{")
    name = name.strip().removesuffix("[ARGS]").strip()
    return read_json(f'{{"name": {json.dumps(name)}, "arguments": {brace}{rest}}}', schemas)


_XML = regex.compile(r"<function=(?P<name>[^>]+)>(?P<body>.*)</function>", regex.DOTALL)
_PARAMETER = regex.compile(r"\s*<parameter=(?P<name>[^>]+)>(?P<value>.*?)</parameter>\s*", regex.DOTALL)


def read_xml(text: str, schemas: Schemas | None) -> list[Call] | None:
    """Parameters as elements, whose texts are read by the types of the function's schema; or one JSON object."""
    whole = _XML.fullmatch(text)
    if whole is None:
        return None
    if whole["body"].lstrip().startswith("{"):
        return read_named(whole["name"] + whole["body"].strip(), schemas)
    properties = (schemas or {}).get(whole["name"], {}).get("properties")
    known = properties if isinstance(properties, dict) else {}
    arguments, at = {}, 0
    while (found := _PARAMETER.match(whole["body"], at)) is not None:
        at = found.end()
        arguments[found["name"]] = _typed(found["value"], known.get(found["name"]))
    if whole["body"][at:].strip():
        return None
    call = _call(whole["name"], arguments, schemas)
    return None if call is None else [call]


def _typed(value: str, schema: Any) -> Any:
    """A parameter's text as the schema's type; without one, or where it does not fit, it stays a text."""
    value = value.removeprefix("\n").removesuffix("\n")
    word, kinds = _WORD.get(value.strip(), value), _kinds(schema)
    if "string" in kinds and not (word == "null" and "null" in kinds):
        return value
    try:
        return json.loads(word)
    except (ValueError, RecursionError):
        return value


def _kinds(schema: Any) -> set[str]:
    """The types that a schema allows, as far as it says them plainly."""
    if not isinstance(schema, dict):
        return set()
    told = schema.get("type")
    kinds = {told} if isinstance(told, str) else {kind for kind in told or [] if isinstance(kind, str)}
    if any(isinstance(value, str) for value in schema.get("enum") or []):
        kinds.add("string")
    return kinds.union(*(_kinds(branch) for key in ("anyOf", "oneOf") for branch in schema.get(key) or []))


_WORD = {"True": "true", "False": "false", "None": "null"}


def read_python(text: str, schemas: Schemas | None) -> list[Call] | None:
    """A Python list of calls with literal keyword arguments."""
    try:
        found = ast.parse(text.strip(), mode="eval").body
        calls = [_read_call(node, schemas) for node in found.elts] if isinstance(found, ast.List) else []
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, SystemError):  # the last: cpython#106905
        return None
    read = [call for call in calls if call is not None]
    return read if read and len(read) == len(calls) else None


def _read_call(node: ast.expr, schemas: Schemas | None) -> Call | None:
    if not isinstance(node, ast.Call) or node.args or any(keyword.arg is None for keyword in node.keywords):
        return None
    return _call(ast.unparse(node.func), {each.arg: _literal(each.value) for each in node.keywords}, schemas)


def _literal(node: ast.expr) -> Any:
    """A literal, with JSON's words for the constants.

    Raises:
        ValueError: it is none.
    """
    if isinstance(node, ast.Name) and node.id in _WORDS:
        return _WORDS[node.id]
    if isinstance(node, ast.List):
        return [_literal(item) for item in node.elts]
    if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
        keys = [_literal(key) for key in node.keys if key is not None]
        return dict(zip(keys, map(_literal, node.values), strict=True))
    return ast.literal_eval(node)
