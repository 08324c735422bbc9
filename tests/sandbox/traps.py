"""Results of the conformance suite that would run code in whoever unpickles them without care."""

from __future__ import annotations

import copyreg
import datetime
import functools
import operator
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.sandbox import shapes


def touch(path: str) -> None:
    """A function of the tool's own module."""
    Path(path).touch()


def set_state(_: Any, path: str) -> None:
    touch(path)


class Trap:
    """Pickles as whatever it was given."""

    def __init__(self, *reduced: Any) -> None:
        self.reduced = reduced

    def __reduce__(self) -> Any:
        return self.reduced


class Sprung(Exception):
    def __init__(self, path: str) -> None:
        super().__init__(path)

    def __reduce__(self) -> Any:
        return (os.system, (f"touch {self.args[0]}",))


class LateItem(shapes.Item):
    def __reduce__(self) -> Any:
        return (os.system, (f"touch {self.name}",))


class LateTime(datetime.datetime):
    path = ""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return (os.system, (f"touch {self.path}",))


class LateText(str):
    def __reduce__(self) -> Any:
        return (os.system, (f"touch {self}",))


class Unpacked:
    """Runs code when its state is restored."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __setstate__(self, state: dict[str, str]) -> None:
        touch(state["path"])


def _late_time(path: str) -> datetime.datetime:
    late = LateTime(2026, 1, 2)
    late.path = path
    return late


def _registered(path: str) -> shapes.Item:
    """An ordinary object, of a class that pickles extraordinarily in this run."""
    copyreg.pickle(shapes.Item, lambda item: (os.system, (f"touch {item.name}",)))  # type: ignore[arg-type]
    return shapes.Item(path)


def _deep(path: str) -> Any:
    return {"a": [1, (shapes.Basket({"x": Trap(os.system, (f"touch {path}",))}, shapes.Colour.RED),)]}


TRAPS: dict[str, Callable[[str], Any]] = {
    "os.system": lambda path: Trap(os.system, (f"touch {path}",)),
    "subprocess": lambda path: Trap(subprocess.check_call, (["touch", path],)),
    "Popen": lambda path: Trap(subprocess.Popen, (["touch", path],)),
    "eval": lambda path: Trap(eval, (f"open({path!r}, 'w')",)),
    "exec": lambda path: Trap(exec, (f"open({path!r}, 'w')",)),
    "open": lambda path: Trap(open, (path, "w")),
    "partial": lambda path: Trap(functools.partial(os.system, f"touch {path}"), ()),
    "method caller": lambda path: Trap(operator.methodcaller("touch"), (Path(path),)),
    "method of a harmless class": lambda path: Trap(Path.touch, (Path(path),)),
    "map": lambda path: Trap(list, (Trap(map, (touch, [path])),)),
    "function of the tool's module": lambda path: Trap(touch, (path,)),
    "state setter": lambda path: Trap(shapes.Item, ("x",), path, None, None, set_state),
    "deep inside": _deep,
    "dict key": lambda path: {Trap(os.system, (f"touch {path}",)): 1},
    "in a set": lambda path: {Trap(os.system, (f"touch {path}",))},
    "subclass of a dataclass": LateItem,
    "subclass of datetime": _late_time,
    "subclass of str": LateText,
    "registered reducer": _registered,
    "exception": Sprung,
}


def lay(kind: str, path: str) -> Any:
    return TRAPS[kind](path)


def throw(kind: str, path: str) -> None:
    """The same as, or in, an exception."""
    trap = TRAPS[kind](path)
    raise trap if isinstance(trap, BaseException) else ValueError("caught", trap)


def unpacked(path: str) -> Any:
    return Unpacked(path)
