"""Writes that other processes make: a version for each domain in Redis, compared at claim time.

Rules:

1. A write gives each of its domains a new version when it begins and when it ends, and is listed while it lasts. No
   version ever comes again, also not after Redis has lost its data.
2. A run ahead notes the versions of what it depends on when it starts; it does not start while a write is listed.
3. Its claim compares: any other version, or a write that is listed, and the run is stale.
4. Redis away means that nothing runs ahead and nothing is handed over. A write goes on regardless; its versions are
   owed, and paid as soon as Redis is back.
5. Tenants never meet: the names of all keys hold a hash of the tenant's API key.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
import time
from collections.abc import Iterable
from typing import Any

from agentspec.effects import EVERYTHING
from agentspec.errors import ConfigError, ToolRefused

log = logging.getLogger("agentspec.shared")

Stamp = tuple[str, ...]
"""Versions of the domains that a run depends on, in the order of their names."""

_ANY = "any"
"""Counts every write, for reads that depend on everything."""

_KEPT_S = 86_400
"""Versions are forgotten after a day without a write: far longer than any result lives."""

_TIMEOUT_S = 0.25
_AVOID_S = 1.0

_BEGIN = """
local now = redis.call('TIME')[1] * 1000
for i = 1, #KEYS, 2 do
  redis.call('SET', KEYS[i], ARGV[1] .. ':begun', 'EX', ARGV[2])
  redis.call('ZADD', KEYS[i + 1], now + ARGV[3] * 1000, ARGV[1]) redis.call('EXPIRE', KEYS[i + 1], ARGV[2])
end
return 0
"""

_END = """
for i = 1, #KEYS, 2 do
  redis.call('SET', KEYS[i], ARGV[1] .. ':ended', 'EX', ARGV[2])
  redis.call('ZREM', KEYS[i + 1], ARGV[1])
end
return 0
"""

_LOOK = """
local now = redis.call('TIME')[1] * 1000
local found, writing = {}, 0
for i = 1, #KEYS, 2 do
  if redis.call('ZREMRANGEBYSCORE', KEYS[i + 1], 0, now) > 0 or not redis.call('GET', KEYS[i]) then
    redis.call('SET', KEYS[i], ARGV[1] .. ':seen', 'EX', ARGV[2])
  end
  writing = writing + redis.call('ZCARD', KEYS[i + 1])
  table.insert(found, redis.call('GET', KEYS[i]))
end
table.insert(found, 1, tostring(writing))
return found
"""


class SharedDomains:
    """One tenant's domains in Redis. Thread-safe; no call takes longer than a quarter of a second.

    Args:
        url: `redis://HOST:PORT/DB`.
        tenant: whatever tells tenants apart; only its hash leaves the process.
        write_limit_s: a write whose process died is taken to be over after this long.

    Raises:
        ConfigError: the package `redis` is missing, or the URL is none.
    """

    def __init__(self, url: str, tenant: str, write_limit_s: float = 900.0) -> None:
        redis = _library()
        self._errors: tuple[type[Exception], ...] = (redis.RedisError, OSError)
        try:
            self._redis = redis.Redis.from_url(
                url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S, retry=None
            )
        except ValueError as error:
            raise ConfigError(f"redis: {url!r} is no URL: write for example redis://127.0.0.1:6379/0") from error
        self._begin, self._end, self._look = (self._redis.register_script(text) for text in (_BEGIN, _END, _LOOK))
        self._prefix = f"agentspec:{hashlib.sha256(tenant.encode()).hexdigest()[:16]}"
        self._write_limit_s = write_limit_s
        self._lock = threading.Lock()
        self._owed: dict[str, frozenset[str]] = {}
        self._avoid_until_s = 0.0
        self._paying = self._closed = self._told = False

    def stamp(self, domains: frozenset[str]) -> Stamp:
        """The versions of these domains now, for a run that is about to start.

        Raises:
            ToolRefused: a write to one of them is going on somewhere, or Redis is away.
        """
        writing, *versions = self._versions(domains)
        if writing != "0":
            raise ToolRefused("another process is writing what this call depends on")
        return tuple(versions)

    def unchanged(self, domains: frozenset[str], stamp: Stamp) -> bool:
        """Whether nobody has written to these domains since, or writes now. False also when Redis is away."""
        try:
            writing, *versions = self._versions(domains)
        except ToolRefused:
            return False
        return writing == "0" and tuple(versions) == stamp

    def begin_write(self, domains: frozenset[str]) -> str:
        """A real write begins; returns its ticket. Never raises: the write goes on."""
        ticket = secrets.token_hex(8)
        self._tell(self._begin, ticket, domains)
        return ticket

    def end_write(self, ticket: str, domains: frozenset[str]) -> None:
        """It ended, well or not. Never raises."""
        self._tell(self._end, ticket, domains)

    def pay(self) -> None:
        """Tell Redis of the writes that it missed, if it is back."""
        with self._lock:
            owed, self._owed = self._owed, {}
        for ticket, domains in owed.items():
            self._tell(self._end, ticket, domains)

    def close(self) -> None:
        """Close the connections. Writes that are owed are told once more."""
        self._closed = True
        self.pay()
        self._redis.close()

    def _versions(self, domains: frozenset[str]) -> list[str]:
        if not domains:
            return ["0"]
        names = {_ANY} if EVERYTHING in domains else _named({*domains, EVERYTHING})
        if self._owed:
            self.pay()
        if self._owed or time.monotonic() < self._avoid_until_s:
            raise ToolRefused("Redis, which tells of other processes' writes, is away")
        try:
            return [part.decode() for part in self._call(self._look, secrets.token_hex(8), names)]
        except self._errors as error:
            self._away(error)
            raise ToolRefused(f"Redis, which tells of other processes' writes, is away: {error}") from error

    def _tell(self, script: Any, ticket: str, domains: frozenset[str]) -> None:
        try:
            if time.monotonic() < self._avoid_until_s:
                raise ConnectionError("avoided for a moment")
            self._call(script, ticket, _named(domains) | {_ANY})
        except self._errors as error:
            self._away(error)
            with self._lock:
                self._owed[ticket] = domains
            self._pay_later()

    def _pay_later(self) -> None:
        """Other processes may have Redis back before anybody here asks it anything."""
        with self._lock:
            if self._paying or not self._owed or self._closed:
                return
            self._paying = True
        later = threading.Timer(_AVOID_S, self._pay_again)
        later.daemon = True
        later.start()

    def _pay_again(self) -> None:
        self._paying = False
        self.pay()
        self._pay_later()

    def _call(self, script: Any, ticket: str, names: Iterable[str]) -> Any:
        keys = [f"{self._prefix}:{kind}:{name}" for name in sorted(names) for kind in ("version", "writers")]
        answer = script(keys=keys, args=[ticket, _KEPT_S, self._write_limit_s])
        self._told = False
        return answer

    def _away(self, error: Exception) -> None:
        now = time.monotonic()
        if now >= self._avoid_until_s:
            self._avoid_until_s = now + _AVOID_S
        if not self._told:
            self._told = True
            log.warning("Redis is away (%s): nothing runs ahead until it is back", error)


def _named(domains: Iterable[str]) -> set[str]:
    """Parts of keys for domains; none of them can be `_ANY`."""
    return {f"domain:{name}" for name in domains}


def _library() -> Any:
    try:
        import redis
    except ImportError as error:
        raise ConfigError("sharing writes needs the package redis: pip install 'agentspec-proxy[redis]'") from error
    return redis
