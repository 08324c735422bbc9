"""The tools of `bench claims`: every way in which a declaration tells calls, owners and state apart."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from agentspec.effects import overlap
from agentspec.proxy.bench.claims.stage import ANYBODY, NOBODY, USER, Stage
from agentspec.proxy.bench.claims.world import FILES, KEYS, NAMED, ORDERS, STOCK, USERS
from agentspec.sandbox import Sandbox
from agentspec.tools_sandbox.declare import declared, speculate
from agentspec.tools_sandbox.tool import DeclaredTool

ACCOUNTS = {NOBODY: "none", "ann": "a", "ben": "a", "cy": "c"}
"""Whose account each user acts on; `ben` and `ann` share one."""


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of a call: as the agent passes them, as a prediction has them, and what it is about."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    json: dict[str, Any]
    about: Hashable


@dataclass(frozen=True, slots=True)
class Offer:
    """One declared tool. `owner` says whose result a user's call gives; `kind` is what figures are counted by."""

    function: Callable[..., Any]
    kind: str
    draw: Callable[[Random], Given]
    owner: Callable[[str, Given], str] = lambda user, given: user

    @property
    def tool(self) -> DeclaredTool:
        """The declaration."""
        return declared(self.function)

    def concerns(self, topic: str) -> bool:
        """Whether some of its calls depend on this domain, or change it."""
        random, tool = Random(0), self.tool
        given = [tool.signature.of_prediction(self.draw(random).json) for _ in range(8)]
        domains = [tool.depends_on(one) if self.kind != "write" else tool.touches(one) for one in given]
        return any(overlap(some, frozenset({topic})) for some in domains)


class Shop:
    """An instance that a tool is bound to."""

    def __init__(self, name: str) -> None:
        self.name = name


SHOPS = (Shop("east"), Shop("west"))


def offers_on(stage: Stage) -> list[Offer]:
    """Fresh tools that act on this stage."""
    groups = (_pure, _reads, _by_argument, _owners, _likenesses, _async_reads, _writes, _async_writes)
    return [offer for group in groups for offer in group(stage)]


def _key(random: Random) -> Given:
    key = random.choice(KEYS)
    by_name = random.random() < 0.5
    return Given(() if by_name else (key,), {"key": key} if by_name else {}, {"key": key}, (key,))


def _nothing(random: Random) -> Given:
    return Given((), {}, {}, ())


def _key_and_detail(random: Random) -> Given:
    key, detail = random.choice(KEYS), random.random() < 0.3
    said, predicted = (detail or random.random() < 0.5 for _ in range(2))
    json = {"key": key, "detail": detail} if predicted else {"key": key}
    return Given((key,), {"detail": detail} if said else {}, json, (key, detail))


def _pure(stage: Stage) -> Iterator[Offer]:
    @speculate(effect="pure")
    def compute(key: str) -> Any:
        return stage.act("compute", (key,), [])

    @speculate(effect="pure")
    async def compute_async(key: str) -> Any:
        return await stage.act_async("compute_async", (key,), [])

    yield Offer(compute, "pure", _key)
    yield Offer(compute_async, "async", _key)


def _reads(stage: Stage) -> Iterator[Offer]:
    @speculate(effect="read", reads={ORDERS}, stable_for=4.0)
    def get_order(key: str, detail: bool = False) -> Any:
        return stage.act("get_order", (key, detail), [(ORDERS, False)])

    @speculate(effect="read", reads={ORDERS, USERS}, stable_for=2.0, timeout_s=1.5)
    def get_both(key: str) -> Any:
        return stage.act("get_both", (key,), [(ORDERS, False), (USERS, False)])

    @speculate(effect="read", stable_for=3.0)
    def get_anything(key: str) -> Any:
        return stage.act("get_anything", (key,), [(STOCK, False), (f"order:{key}", False)])

    @speculate(effect="read", reads={FILES}, stable_for=4.0, max_inflight=2)
    def get_file(key: str) -> Any:
        return stage.act("get_file", (key,), [(FILES, False)])

    yield Offer(get_order, "read", _key_and_detail)
    yield Offer(get_both, "read", _key)
    yield Offer(get_anything, "everything", _key)
    yield Offer(get_file, "read", _key)


def _by_argument(stage: Stage) -> Iterator[Offer]:
    @speculate(effect="read", reads=lambda key: {f"order:{key}"}, stable_for=5.0)
    def get_one(key: str) -> Any:
        return stage.act("get_one", (key,), [(f"order:{key}", False)])

    @speculate(effect="read", reads=lambda key: {f"order:{key}", STOCK}, stable_for=5.0)
    async def get_one_async(key: str) -> Any:
        return await stage.act_async("get_one_async", (key,), [(STOCK, False), (f"order:{key}", False)])

    yield Offer(get_one, "by_argument", _key)
    yield Offer(get_one_async, "by_argument", _key)


def _owners(stage: Stage) -> Iterator[Offer]:
    @speculate(effect="read", reads={USERS}, stable_for=4.0, identity=lambda: ACCOUNTS[USER.get()])
    def my_account() -> Any:
        return stage.act("my_account", (), [(USERS, False)], ACCOUNTS[USER.get()])

    @speculate(effect="read", reads={STOCK}, stable_for=4.0)
    def in_shop(self: Any, key: str) -> Any:
        return stage.act("in_shop", (key,), [(STOCK, False)], f"{USER.get()} in {self.name}")

    def in_a_shop(random: Random) -> Given:
        given, shop = _key(random), random.choice(SHOPS)
        return Given((shop, *given.args), given.kwargs, given.json, given.about)

    yield Offer(my_account, "identity", _nothing, lambda user, given: ACCOUNTS[user])
    yield Offer(in_shop, "instance", in_a_shop, lambda user, given: f"{user} in {given.args[0].name}")


def _likenesses(stage: Stage) -> Iterator[Offer]:
    @speculate(
        effect="read",
        reads={USERS},
        stable_for=4.0,
        same_call=lambda one, two: one["name"].lower() == two["name"].lower(),
    )
    def find(name: str) -> Any:
        return stage.act("find", (name.lower(),), [(USERS, False)])

    @speculate(effect="read", reads={ORDERS}, stable_for=4.0)
    def on_day(day: datetime.date) -> Any:
        return stage.act("on_day", (str(day), type(day).__name__), [(ORDERS, False)])

    @speculate(effect="read", reads={STOCK}, stable_for=4.0)
    def priced(amount: float) -> Any:
        return stage.act("priced", (amount,), [(STOCK, False)])

    def a_name(random: Random) -> Given:
        names = ("Ann", "ann", "Ben")
        return Given((random.choice(names),), {}, {"name": random.choice(names)}, None)

    def a_day(random: Random) -> Given:
        day = datetime.date(2024, 1, random.randint(1, 2))
        return Given((day if random.random() < 0.7 else str(day),), {}, {"day": str(day)}, None)

    def an_amount(random: Random) -> Given:
        amount = random.randint(1, 2)
        return Given((random.choice((amount, float(amount))),), {}, {"amount": amount}, (amount,))

    yield Offer(find, "same_call", _about(a_name, lambda name: name.lower()))
    yield Offer(on_day, "typed", _about(a_day, str, lambda day: type(day).__name__))
    yield Offer(priced, "typed", an_amount)


def _about(draw: Callable[[Random], Given], *parts: Callable[[Any], Hashable]) -> Callable[[Random], Given]:
    """The same draws; what they are about follows from the first argument."""

    def drawn(random: Random) -> Given:
        given = draw(random)
        return Given(given.args, given.kwargs, given.json, tuple(part(given.args[0]) for part in parts))

    return drawn


def _async_reads(stage: Stage) -> Iterator[Offer]:
    @speculate(effect="read", reads={ORDERS}, stable_for=4.0)
    async def get_order_async(key: str) -> Any:
        return await stage.act_async("get_order_async", (key,), [(ORDERS, False)])

    @speculate(effect="read", reads={STOCK, USERS}, stable_for=3.0)
    async def get_both_async(key: str) -> Any:
        return await stage.act_async("get_both_async", (key,), [(STOCK, False), (USERS, False)])

    @speculate(effect="read", reads={USERS}, stable_for=4.0, identity=lambda: ACCOUNTS[USER.get()])
    async def my_account_async() -> Any:
        return await stage.act_async("my_account_async", (), [(USERS, False)], ACCOUNTS[USER.get()])

    yield Offer(get_order_async, "async", _key)
    yield Offer(get_both_async, "async", _key)
    yield Offer(my_account_async, "identity", _nothing, lambda user, given: ACCOUNTS[user])


def _fails_for_one(key: str) -> set[str]:
    """A rule that raises makes its write one of everything."""
    if key == "2":
        raise KeyError(key)
    return {f"order:{key}"}


def _writes(stage: Stage) -> Iterator[Offer]:
    @speculate(effect="write", writes={ORDERS})
    def set_order(key: str) -> Any:
        return stage.act("set_order", (key,), [(ORDERS, True)])

    @speculate(effect="write", writes={USERS, STOCK})
    def set_two(key: str) -> Any:
        return stage.act("set_two", (key,), [(STOCK, True), (USERS, True)])

    @speculate(effect="write", writes=_fails_for_one)
    def set_one(key: str) -> Any:
        return stage.act("set_one", (key,), [(f"order:{key}" if key != "2" else USERS, True)])

    @speculate(effect="irreversible")
    def set_anything(key: str) -> Any:
        some = stage.fibers.random.sample((*NAMED, FILES), 2)
        return stage.act("set_anything", (key,), [(domain, True) for domain in some])

    yield Offer(set_order, "write", _key)
    yield Offer(set_two, "write", _key)
    yield Offer(set_one, "write", _key)
    yield Offer(set_anything, "write", _key)
    yield Offer(_sandboxed(stage), "sandboxed", _key, lambda user, given: ANYBODY)


def _sandboxed(stage: Stage) -> Callable[..., Any]:
    def set_file(key: str) -> Any:
        return stage.act_sandboxed("set_file", (key,))

    set_file.__qualname__ = "set_file"  # it would have to be importable for a real sandbox
    place = Sandbox("overlay", workspace=".")
    return speculate(
        effect="write", reads={FILES}, writes={FILES}, stable_for=4.0, sandbox=place, same_result=lambda one, two: True
    )(set_file)


def _async_writes(stage: Stage) -> Iterator[Offer]:
    @speculate(effect="write", writes={STOCK})
    async def set_stock_async(key: str) -> Any:
        return await stage.act_async("set_stock_async", (key,), [(STOCK, True)])

    @speculate(effect="write", writes=lambda key: {f"order:{key}", ORDERS})
    async def set_one_async(key: str) -> Any:
        return await stage.act_async("set_one_async", (key,), [(ORDERS, True), (f"order:{key}", True)])

    yield Offer(set_stock_async, "write", _key)
    yield Offer(set_one_async, "write", _key)
