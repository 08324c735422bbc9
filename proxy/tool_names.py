"""A tool's name as an agent's framework sends it to the model, and as the runtime that holds it knows it.

MCP clients put the server's name before the tool's: `mcp__shop__get_order`, `shop_get_order`, `shop.get_order`.

1. The very name comes first.
2. A prefix is a server's name and a separator. Where two held names could be meant, none is.
3. One name alone does not tell a server's name from a verb (`cancel_order` ends like `order`). A whole request does: a
   prefix counts there if all that is offered behind it is held, and it is the only one; and it must begin with `mcp__`
   or stand before two names at least.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_PREFIX = re.compile(r"(?:mcp__?)?[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?(?:__|_|\.)")
_CERTAIN = re.compile(r"mcp__?.+__")


def held_name(requested: str, held: Collection[str]) -> str | None:
    """The held name that a requested one means, as far as that name alone tells.

    >>> held_name("mcp__shop__get_order", {"get_order", "cancel"})
    'get_order'
    >>> held_name("get_order", {"get_order", "order"})
    'get_order'
    >>> held_name("shop_get_order", {"get_order", "order"})  # the server's name could be shop_get
    >>> held_name("forget_order", {"get_order"})
    """
    if requested in held:
        return requested
    fitting = [name for name in held if _prefix(requested, name) is not None]
    return fitting[0] if len(fitting) == 1 else None


def held_names(offered: Collection[str], held: Collection[str]) -> dict[str, str]:
    """Those of a request's tools that a runtime holds, with their held names.

    >>> held_names(["shop_order", "shop_get_order", "cancel_order"], {"order", "get_order"})
    {'shop_get_order': 'get_order', 'shop_order': 'order'}
    >>> held_names(["cancel_order", "search"], {"order"})  # one name alone, and no mcp__ before it
    {}
    """
    plain = {name: name for name in offered if name in held}
    if plain:
        return plain
    found = {prefix: _behind(prefix, offered) for prefix in _prefixes(offered, held)}
    certain = [prefix for prefix in found if _CERTAIN.fullmatch(prefix)]
    likely = certain or [prefix for prefix, behind in found.items() if len(behind) > 1]
    return {likely[0] + name: name for name in found[likely[0]]} if len(likely) == 1 else {}


def _prefixes(offered: Collection[str], held: Collection[str]) -> set[str]:
    """The prefixes of which all that is offered behind them is held, without those that only go on from another."""
    some = {prefix for asked in offered for name in held if (prefix := _prefix(asked, name)) is not None}
    whole = {prefix for prefix in some if all(name in held for name in _behind(prefix, offered))}
    return {prefix for prefix in whole if not any(prefix != other and prefix.startswith(other) for other in whole)}


def _behind(prefix: str, offered: Collection[str]) -> list[str]:
    return sorted(name.removeprefix(prefix) for name in offered if name.startswith(prefix))


def _prefix(requested: str, name: str) -> str | None:
    before = requested.removesuffix(name)
    return before if name and before != requested and _PREFIX.fullmatch(before) else None
