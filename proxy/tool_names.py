"""A tool's name as an agent's framework sends it to the model, and as the runtime that holds it knows it.

MCP clients put the server's name before the tool's: `mcp__shop__get_order`, `mcp_shop__get_order`, `shop_get_order`.

1. The very name comes first.
2. A prefix is a server's name and a separator. Where two held names could be meant, none is.
3. One name alone does not tell a server's name from a verb (`cancel_order` ends like `order`). A whole request does: a
   prefix counts there if all that is offered behind it is held, and it is the only one; and if it neither begins with
   `mcp_` nor ends with `__`, every held name (two at least) must be offered behind it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

_PREFIX = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?(?:__|_|\.)")
_CERTAIN = re.compile(r"mcp_.+|.+__")
_SEPARATOR = re.compile(r"[_.](?=[^_.])")


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
    fitting = [name for _, name in _splits(requested) if name in held]
    return fitting[0] if len(fitting) == 1 else None


def held_names(offered: Collection[str], held: Collection[str]) -> dict[str, str]:
    """Those of a request's tools that a runtime holds, with their held names.

    >>> held_names(["shop_order", "shop_get_order", "cancel_order"], {"order", "get_order"})
    {'shop_get_order': 'get_order', 'shop_order': 'order'}
    >>> held_names(["cancel_order", "search"], {"order"})  # one name alone, and no mcp_ before it
    {}
    """
    plain = {name: name for name in offered if name in held}
    if plain:
        return plain
    found = {prefix: _behind(prefix, offered) for prefix in _prefixes(offered, held)}
    certain = [prefix for prefix in found if _CERTAIN.fullmatch(prefix)]
    likely = certain or [prefix for prefix, behind in found.items() if len(behind) == len(held) > 1]
    return {likely[0] + name: name for name in found[likely[0]]} if len(likely) == 1 else {}


def _prefixes(offered: Collection[str], held: Collection[str]) -> set[str]:
    """The prefixes of which all that is offered behind them is held, without those that only go on from another."""
    some = {prefix for asked in offered for prefix, name in _splits(asked) if name in held}
    whole = {prefix for prefix in some if all(name in held for name in _behind(prefix, offered))}
    return {prefix for prefix in whole if not any(prefix != other and prefix.startswith(other) for other in whole)}


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """Every way to read a name as a prefix and a tool's name."""
    for separator in _SEPARATOR.finditer(name):
        prefix, rest = name[: separator.end()], name[separator.end() :]
        if _PREFIX.fullmatch(prefix):
            yield prefix, rest


def _behind(prefix: str, offered: Collection[str]) -> list[str]:
    return sorted(name.removeprefix(prefix) for name in offered if name.startswith(prefix))
