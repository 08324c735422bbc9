"""tau2-bench's airline and retail as one shared database each: every call atomic, every write on record.

The judge needs no clock: writes are numbered in the order in which they took the lock, each real call knows the
versions between which it ran, and a replay on a fresh database says what the tool gives on each of them.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentspec import speculate
from agentspec.calls import ToolCall

LATENCY_S = (0.012, 0.03)
"""Before a tool's own work, and again after it: what a tool saw is out of date now and then when it answers."""

TOUCHES: Mapping[str, Sequence[str]] = {
    "get_user_details": ("users",),
    "get_reservation_details": ("reservations",),
    "get_flight_status": ("flights",),
    "search_direct_flight": ("flights",),
    "search_onestop_flight": ("flights",),
    "list_all_airports": ("airports",),
    "book_reservation": ("reservations", "users", "flights"),
    "cancel_reservation": ("reservations",),
    "send_certificate": ("users",),
    "update_reservation_baggages": ("reservations", "users"),
    "update_reservation_flights": ("reservations", "users"),
    "update_reservation_passengers": ("reservations",),
    "find_user_id_by_name_zip": ("users",),
    "find_user_id_by_email": ("users",),
    "get_order_details": ("orders",),
    "get_product_details": ("products",),
    "list_all_product_types": ("products",),
    "cancel_pending_order": ("orders", "users"),
    "exchange_delivered_order_items": ("orders",),
    "modify_pending_order_address": ("orders",),
    "modify_pending_order_items": ("orders", "users"),
    "modify_pending_order_payment": ("orders", "users"),
    "modify_user_address": ("users",),
    "return_delivered_order_items": ("orders",),
}
"""The tables that a tool of tau2 reads or writes."""

ROW = {"orders": "order_id", "reservations": "reservation_id", "users": "user_id"}
"""The argument that names a table's row."""

NEW_RESERVATIONS = ["HATHAT", "HATHAU", "HATHAV"]
ERROR = "Error: "
CHANGES = ("write", "irreversible")
EFFECTS = {"read": "read", "write": "write", "generic": "irreversible"}


@functools.cache
def _pristine(domain: str) -> tuple[Any, Any, dict[str, Any]]:
    importlib.import_module("loguru").logger.disable("tau2")
    kit = importlib.import_module(f"tau2.domains.{domain}.environment").get_environment().tools
    return type(kit), type(kit.db), kit.db.model_dump()


def fresh(domain: str) -> Any:
    """A toolkit over a database as it is delivered."""
    kit, database, content = _pristine(domain)
    return kit(database.model_validate(content))


def answered(kit: Any, call: ToolCall) -> str:
    """What a call gives without agentspec, as the text that tau2 puts into the tool message."""
    to_text = importlib.import_module("tau2.environment.environment").Environment.to_json_str
    return told(lambda: str(to_text(kit.tools[call.name](**call.arguments))))


def told(make: Callable[[], str]) -> str:
    """What the model is told of a call; tau2's tools refuse with a ValueError."""
    try:
        return make()
    except ValueError as error:
        return f"{ERROR}{error}"


@dataclass(frozen=True)
class Written:
    """One run of a tool that writes; the thread that ran it tells whose it was."""

    thread: str
    call: ToolCall
    result: str


@dataclass(frozen=True)
class Made:
    """A real call of a session, and the first and the last version of the database while it lasted."""

    session: str
    call: ToolCall
    result: str
    versions: range


class Shop:
    """One domain's tools, declared, over one database that all sessions share."""

    def __init__(self, domain: str, domains: str = "static", seed: int = 0) -> None:
        self.domain = domain
        self.kit = fresh(domain)
        self.written: list[Written] = []
        self.made: list[Made] = []
        self._lock = threading.Lock()
        self._dice = random.Random(seed)
        self._owners = {row: found.user_id for table in ("orders", "reservations") for row, found in self._rows(table)}
        self.tools = {name: self._declared(name, domains) for name in self.kit.tools}

    def _rows(self, table: str) -> Iterable[tuple[str, Any]]:
        return getattr(self.kit.db, table, {}).items()

    def effect(self, name: str) -> str:
        """What the tool is declared as."""
        return "pure" if name == "calculate" else EFFECTS[self.kit.tool_type(name).value]

    def _declared(self, name: str, domains: str) -> Callable[..., str]:
        effect = self.effect(name)
        touched: Any = set(TOUCHES.get(name, ()))
        names_a_row = not {*ROW.values()}.isdisjoint(inspect.signature(self.kit.tools[name]).parameters)
        if domains == "by_argument" and names_a_row:
            touched = functools.partial(self._by_argument, name, effect)
        named = {"read": {"reads": touched, "stable_for": 30.0}, "write": {"writes": touched}}.get(effect, {})
        return speculate(effect=effect, **named)(self._body(name, effect))

    def _by_argument(self, name: str, effect: str, /, **arguments: Any) -> set[str]:
        """The rows that a call touches; a write also touches their tables, for those that search through them."""
        tables = TOUCHES[name]
        found = {f"{table} {row}" for table in tables for row in self._rows_of(table, arguments)}
        return found | set(tables) if effect == "write" else found

    def _rows_of(self, table: str, arguments: Mapping[str, Any]) -> list[str]:
        if (argument := ROW.get(table)) in arguments:
            return [arguments[argument]]
        if table == "users":
            return [self._owners.get(arguments.get("order_id") or arguments["reservation_id"], "nobody")]
        return NEW_RESERVATIONS if table == "reservations" else []

    def _body(self, name: str, effect: str) -> Callable[..., str]:
        method = self.kit.tools[name]

        @functools.wraps(method)
        def body(*args: Any, **kwargs: Any) -> str:
            time.sleep(self._dice.uniform(*LATENCY_S))
            arguments = inspect.signature(method).bind(*args, **kwargs).arguments
            result = self._carried_out(ToolCall(name, arguments), effect)
            time.sleep(self._dice.uniform(*LATENCY_S))
            if result.startswith(ERROR):
                raise ValueError(result.removeprefix(ERROR))
            return result

        body.__signature__ = inspect.signature(method).replace(return_annotation=str)  # type: ignore[attr-defined]
        body.__annotations__ = {**method.__annotations__, "return": str}
        return body

    def _carried_out(self, call: ToolCall, effect: str) -> str:
        """What the tool gives, in one piece; a change that was refused is on record too."""
        with self._lock:
            result = answered(self.kit, call)
            if effect in CHANGES:
                self.written.append(Written(threading.current_thread().name, call, result))
            return result

    def make(self, session: str, call: ToolCall) -> str:
        """A real call, as an agent's loop makes it."""
        first = len(self.written)
        result = told(lambda: self.tools[call.name](**call.arguments))
        self.made.append(Made(session, call, result, range(first, len(self.written) + 1)))
        return result

    def content(self) -> dict[str, Any]:
        """All that the database holds."""
        return self.kit.db.model_dump()

    def writes_made(self) -> list[Made]:
        """The real calls that may change something."""
        return [made for made in self.made if self.effect(made.call.name) in CHANGES]


def replay(shop: Shop) -> tuple[Any, list[Made]]:
    """Carry the writes out again one after the other on a fresh database.

    Returns:
        the database's content, and the real calls whose result the tool gives on none of the versions that were
        current while they lasted.
    """
    kit = fresh(shop.domain)
    open_calls = [made for made in shop.made if shop.effect(made.call.name) not in CHANGES]
    for version in range(len(shop.written) + 1):
        open_calls = [made for made in open_calls if version not in made.versions or not _gives(kit, made)]
        if version < len(shop.written):
            assert _gives(kit, shop.written[version]), f"a serial run gives another result: {shop.written[version]}"
    return kit.db.model_dump(), open_calls


def _gives(kit: Any, known: Made | Written) -> bool:
    return answered(kit, known.call) == known.result
