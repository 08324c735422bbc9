"""Arbitrary and damaged bytes for everything that reads the wire: requests, streams, answers, trajectory hashes.

    python -m tests.fuzz.fuzz_wire --seconds 60           # seeded damage to plausible bytes
    python -m tests.fuzz.fuzz_wire --atheris -runs=100000 # guided by coverage, where atheris is installed

A reader may refuse a request (RequestError, ValidationError, RecursionError); it may do nothing else that is no result.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator

import msgspec

from agentspec.errors import RequestError
from agentspec.events import TurnEnd, TurnEvent
from agentspec.trajectory import answered_ids, calls_in, chain, depth
from agentspec.wire.request import TurnRequest
from tests.wire.answers import CALL, CUSTOM, PROVIDER, REASONING, TEXT, Answer, Part
from tests.wire.dialects import ALL, Dialect
from tests.wire.mutations import HISTORY, altered, damaged

REFUSALS = (RequestError, msgspec.ValidationError, RecursionError)
DIALECTS = list(ALL.values())


def one_input(data: bytes) -> None:
    """One case: the first byte chooses who reads the rest, the second where it is cut."""
    if len(data) < 2:
        return
    dialect, reader, rest = DIALECTS[data[0] % 3], data[0] // 3 % 3, data[2:]
    if reader == 0:
        check_request(dialect, rest)
    elif reader == 1:
        check_stream(dialect, rest, data[1])
    else:
        check_answer(dialect, rest)


def check_request(dialect: Dialect, body: bytes) -> None:
    """It is read or refused; read twice it is the same; its hashes are those of its prefixes."""
    request = read(dialect, body)
    if request is None:
        return
    again = read(dialect, body)
    assert again is not None
    assert again.said == request.said
    values = chain(request.said, "seed")
    assert len(values) == len(request.said)
    middle = len(values) // 2
    assert chain(request.said[:middle], "seed") == values[:middle]
    calls_in(request.said), answered_ids(request.said), depth(request.said)
    hash(request.model), bool(request.previous), bool(request.conversation)
    assert all(isinstance(name, str) and hasattr(schema, "get") for name, schema in request.tools.items())


def read(dialect: Dialect, body: bytes) -> TurnRequest | None:
    try:
        return dialect.api.read_request(body)
    except REFUSALS:
        return None


def check_stream(dialect: Dialect, data: bytes, where: int) -> None:
    """It says the same in two pieces, and ends once."""
    whole = told(dialect, [data])
    cut = where * len(data) // 255
    assert told(dialect, [data[:cut], data[cut:]]) == whole
    assert sum(isinstance(event, TurnEnd) for event in whole) == 1


def told(dialect: Dialect, chunks: list[bytes]) -> list[TurnEvent]:
    stream = dialect.api.open_stream()
    events = [event for chunk in chunks for event in stream.feed(chunk)]
    return [*events, *stream.finish(), *stream.finish()]


def check_answer(dialect: Dialect, body: bytes) -> None:
    """It ends once, or says nothing at all."""
    events = dialect.api.read_answer(body)
    assert sum(isinstance(event, TurnEnd) for event in events) <= 1


ANSWER = Answer(
    (
        Part(REASONING, ("hm\u2028", "so")),
        Part(TEXT, ("Look", "ing")),
        Part(CALL, ('{"city": "Z', 'ürich"}'), "weather", "call_a"),
        Part(CALL, ('{"a', '": [1.0, {}]}'), "f", "call_b"),
        Part(CUSTOM, ("*** Begin",), "patch", "call_c"),
        Part(PROVIDER, ('{"q": 1}',), "web_search_call", "ws"),
    ),
    order=(0, 1, 2, 3, 2, 3, 1, 0, 4, 5) * 4,
)


def in_reach(dialect: Dialect) -> Answer:
    return Answer(tuple(part for part in ANSWER.parts if part.kind in dialect.parts), order=ANSWER.order)


def seeds() -> list[bytes]:
    """Plausible inputs, for both kinds of fuzzing."""
    found = []
    for number, dialect in enumerate(DIALECTS):
        answer = in_reach(dialect)
        found.append(bytes([number, 0]) + json.dumps(HISTORY).encode())
        found.append(bytes([number, 0]) + dialect.request("hello", tools=HISTORY["tools"]))
        found += [bytes([number + 3, 99]) + dialect.stream(answer, end) for end in ("\n", "\r\n")]
        found.append(bytes([number + 6, 0]) + dialect.whole(answer))
    return found


def cases(seed: int) -> Iterator[bytes]:
    """Endlessly: a seed with damage to its JSON, its bytes, or both; now and then plain rubbish."""
    chance = random.Random(seed)
    known = seeds()
    while True:
        chosen = chance.choice(known)
        head, rest = bytes([chosen[0], chance.randrange(256)]), chosen[2:]
        if chance.random() < 0.5:
            rest = with_odd_json(rest, chance)
        if chance.random() < 0.6:
            rest = damaged(rest, chance)
        yield head + (chance.randbytes(chance.randrange(200)) if chance.random() < 0.02 else rest)


def with_odd_json(data: bytes, chance: random.Random) -> bytes:
    """Other values in the JSON of a body or of a stream's events."""
    lines = data.split(b"\n")
    for number, line in enumerate(lines):
        prefix, text = (b"data: ", line[6:]) if line.startswith(b"data: {") else (b"", line)
        if text[:1] == b"{" and (not prefix or chance.random() < 0.2):
            lines[number] = prefix + json.dumps(altered(json.loads(text), chance)).encode()
    return b"\n".join(lines)


def run(seed: int, seconds: float, limit: int | None = None) -> int:
    """Try cases until the time or the number is up; how many. A case that fails is written beside the error."""
    until, done = time.monotonic() + seconds, 0
    for data in cases(seed):
        if time.monotonic() > until or done == limit:
            return done
        try:
            one_input(data)
        except Exception as error:
            error.add_note(f"case {done} of seed {seed}: {data!r}")
            raise
        done += 1
    return done


def main() -> None:
    if "--atheris" in sys.argv:
        sys.argv.remove("--atheris")
        _guided()
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}: {run(options.seed, options.seconds)} cases without a fault")


def _guided() -> None:
    """Fuzzing by coverage: every function of the readers is watched."""
    import tempfile
    from pathlib import Path

    import atheris

    import agentspec.calls
    import agentspec.sse
    import agentspec.trajectory
    import agentspec.wire.chat
    import agentspec.wire.messages
    import agentspec.wire.responses

    wire = agentspec.wire
    for module in (agentspec.calls, agentspec.sse, agentspec.trajectory, wire.chat, wire.messages, wire.responses):
        for value in list(vars(module).values()):
            if getattr(value, "__module__", None) == module.__name__:
                _watch(atheris, value)
    with tempfile.TemporaryDirectory() as corpus:
        for number, data in enumerate(seeds()):
            (Path(corpus) / str(number)).write_bytes(data)
        atheris.Setup([*sys.argv, "-max_len=20000", corpus], one_input)
        atheris.Fuzz()


def _watch(atheris: object, value: object) -> None:
    """Count a function's branches, or those of a class's methods."""
    functions = [f for f in vars(value).values() if hasattr(f, "__code__")] if isinstance(value, type) else [value]
    for function in functions:
        if hasattr(function, "__code__"):
            atheris.instrument_func(function)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
