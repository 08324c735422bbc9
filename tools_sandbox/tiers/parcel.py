"""Results and exceptions on their way out of a sandbox.

What comes out was made by code that ran on a guess, so it is read as data: pickle, with a list of what may be named in
it. Plain data, the standard library's value types, and the user's data classes, models, enums, named tuples and
exceptions get through; anything else is refused, on both sides, and nothing in it is ever called.
"""

from __future__ import annotations

import dataclasses
import enum
import io
import pickle
import sys
from typing import Any, ClassVar

from pydantic import BaseModel

from agentspec.errors import ToolRefused

_VALUES = frozenset(
    {
        *(("builtins", name) for name in ("set", "frozenset", "bytearray", "complex", "range", "slice", "Ellipsis")),
        *(("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")),
        *(("collections", name) for name in ("OrderedDict", "deque", "Counter")),
        *(("pathlib", name) for name in ("PosixPath", "PurePosixPath", "PureWindowsPath", "Path", "PurePath")),
        *(("pathlib._local", name) for name in ("PosixPath", "PurePosixPath", "PureWindowsPath", "Path", "PurePath")),
        *(("ipaddress", name) for name in ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network")),
        ("decimal", "Decimal"),
        ("fractions", "Fraction"),
        ("uuid", "UUID"),
        ("uuid", "SafeUUID"),
        ("zoneinfo", "ZoneInfo._unpickle"),
        ("copyreg", "__newobj__"),
        ("copyreg", "__newobj_ex__"),
        ("_codecs", "encode"),
        ("agentspec.tools_sandbox.tiers.parcel", "rebuilt"),
    }
)


def pack(result: Any) -> bytes:
    """A result as bytes.

    Raises:
        ToolRefused: it holds what cannot leave the sandbox.
    """
    file = io.BytesIO()
    try:
        _Writer(file, protocol=5).dump(result)
        packed = file.getvalue()
    except Exception as error:
        raise ToolRefused(f"a {type(result).__name__} cannot leave the sandbox: {error}") from error
    unpack(packed)
    return packed


def unpack(packed: bytes) -> Any:
    """The result again.

    Raises:
        ToolRefused: it names what is not let through, or is damaged.
    """
    try:
        try:
            return _PlainReader(io.BytesIO(packed)).load()
        except _NamesClasses:
            return _Reader(io.BytesIO(packed)).load()
    except ToolRefused:
        raise
    except Exception as error:
        raise ToolRefused(f"the result cannot be read: {error!r}") from error


class _Writer(pickle.Pickler):
    """Writes exceptions so that reading them again runs none of their code."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, BaseException) and type(obj).__module__ != "builtins":
            return rebuilt, (type(obj), obj.args, vars(obj))
        if isinstance(obj, enum.Enum):  # some versions of Python would name functions for it
            return type(obj), (obj.value,)
        return NotImplemented


def rebuilt(kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    """An exception without its constructor having run.

    Raises:
        ToolRefused: it is no exception.
    """
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise ToolRefused("that is no exception")
    base = next(cls for cls in kind.__mro__ if cls.__module__ == "builtins")
    error: BaseException = base.__new__(kind, *args)
    error.args = args
    vars(error).update(state)
    return error


class _NamesClasses(Exception):
    """It is not plain data alone."""


class _PlainReader(pickle.Unpickler):
    """Fast, for what names no class at all."""

    def find_class(self, module: str, name: str) -> Any:
        raise _NamesClasses


_PythonUnpickler: Any = pickle._Unpickler


class _Reader(_PythonUnpickler):  # type: ignore[misc]
    """Slower, in Python, because it must see what state is given to what."""

    dispatch: ClassVar[dict[int, Any]] = dict(_PythonUnpickler.dispatch)

    def load_build(self) -> None:
        target = self.stack[-2]
        if isinstance(target, (type, enum.Enum)):  # shared by the whole process: no run may write to it
            raise ToolRefused("the result tries to change a class")
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build

    def load_reduce(self) -> None:
        maker = self.stack[-2]
        if isinstance(maker, type) and not _may_be_called(maker):
            raise ToolRefused(f"a {maker.__qualname__} cannot leave the sandbox: making it again would run its code")
        super().load_reduce()

    dispatch[pickle.REDUCE[0]] = load_reduce

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _VALUES:
            return super().find_class(module, name)
        if module not in sys.modules:
            raise ToolRefused(f"{module}.{name} is not known here: import its module where the tool is declared")
        found = super().find_class(module, name)
        if not _is_data(found):
            raise ToolRefused(
                f"a {module}.{name} cannot leave the sandbox; return plain data, data classes or pydantic models"
            )
        return found

    def persistent_load(self, pid: Any) -> Any:
        raise ToolRefused("the result refers to something outside it")


def _may_be_called(kind: type) -> bool:
    """Whether calling a class does nothing but make a value."""
    name = (kind.__module__, kind.__qualname__)
    return name in _VALUES or issubclass(kind, enum.Enum) or kind.__module__ == "builtins"


def _is_data(found: Any) -> bool:
    """A class whose instances are data, and that does nothing but hold them."""
    if not isinstance(found, type):
        return False
    if issubclass(found, (BaseException, BaseModel, enum.Enum)) or dataclasses.is_dataclass(found):
        return True
    return issubclass(found, tuple) and hasattr(found, "_fields")


def pack_error(error: BaseException) -> bytes:
    """An exception as bytes; one that cannot leave as itself leaves as a `ToolRefused` that names it."""
    try:
        return pack(error.with_traceback(None))
    except Exception:
        return pack(ToolRefused(f"the run raised {type(error).__name__}: {error}"))
