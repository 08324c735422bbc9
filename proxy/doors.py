"""Who may come in: the proxy's own keys, the sizes of heads, the names and pages that it answers to, and for whom."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets

from agentspec.config import Settings
from agentspec.errors import ConfigError, RequestError
from agentspec.protocols import Headers
from agentspec.proxy.asgi import Head, head_of, told
from agentspec.proxy.tenant_secret import tenant_secret

KEY_PREFIX = "ask-"
_KEY_HEADERS = (b"authorization", b"x-api-key")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Doors:
    """Checks a request before anything is done for it. Keys are compared in constant time, as hashes."""

    def __init__(self, settings: Settings) -> None:
        self._secret = tenant_secret(settings)
        self._keys = [(key.tenant, bytes.fromhex(key.sha256)) for key in settings.keys]
        self._names = frozenset(name.lower() for name in settings.allowed_hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in settings.allowed_origins)
        self._loopback = is_loopback(settings.host)
        self._max_header_bytes = settings.max_header_bytes

    def admit(self, headers: Headers, head: Head) -> str:
        """The tenant whose request this is; `head`: these headers by their names.

        Raises:
            RequestError: its head is too large; it comes from a page or under a name that is not allowed; it has
                no key.
        """
        if sum(len(name) + len(value) + 4 for name, value in headers) > self._max_header_bytes:
            raise head_too_large(self._max_header_bytes)
        self.refuse_strangers(head)
        return self._tenant(head)

    def refuse_strangers(self, head: Head) -> None:
        """Raises RequestError where a page that is not allowed asks, or somebody under a name that is not ours."""
        if (reason := self._foreign(head)) is not None:
            raise RequestError(reason, code="forbidden", status=403)

    def _foreign(self, head: Head) -> str | None:
        """Why a page or a borrowed name (DNS rebinding) may not ask, if that is what asks."""
        host = (told(head, b"host") or "").lower()
        if not self._answers_to(host):
            return f"the host {host!r} is not this machine (setting allowed_hosts)"
        origin = (told(head, b"origin") or "").lower().rstrip("/")
        if origin and origin not in self._origins and origin not in (f"http://{host}", f"https://{host}"):
            return f"the page {origin!r} may not ask (setting allowed_origins)"
        return None

    def _answers_to(self, host: str) -> bool:
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name in _LOOPBACK_NAMES or name in self._names or host in self._names:
            return True
        return not (self._loopback or self._names)  # beyond this machine the key guards the door

    def browser_or_stranger(self, headers: Headers) -> str | None:
        """Why the channel is not opened: no page may open it at all, nor anyone under a borrowed name."""
        head = head_of(headers)
        return "browsers may not open this channel" if b"origin" in head else self._foreign(head)

    def tenant(self, headers: Headers) -> str:
        """Whose request this is: the key's tenant, or without keys of ours a keyed hash of the agent's key.

        Raises:
            RequestError: keys are needed, and it shows none of ours (`invalid_api_key`).
        """
        return self._tenant(head_of(headers))

    def _tenant(self, head: Head) -> str:
        shown = [value for name in _KEY_HEADERS if (value := told(head, name)) is not None]
        if not self._keys:
            text = _bare((shown or [""])[0]).encode("utf-8", "replace")  # a key is one, whatever header it comes in
            return hashlib.blake2b(text, key=self._secret, digest_size=12).hexdigest()
        presented = [hash_of(_bare(value)) for value in shown]
        known = [tenant for tenant, key in self._keys for one in presented if hmac.compare_digest(key, one)]
        if not known:
            message = "this proxy needs a key of its own as the API key; its operator makes one (`agentspec keys new`)"
            raise RequestError(message, code="invalid_api_key", status=401)
        return f"key:{known[0]}"


def _bare(value: str) -> str:
    """A key without the word before it."""
    kind, _, rest = value.partition(" ")
    return (rest if kind.lower() == "bearer" else value).strip()


def head_too_large(limit_bytes: int) -> RequestError:
    """A request whose head is larger than this."""
    message = f"the request's headers are larger than {limit_bytes} bytes (setting max_header_bytes)"
    return RequestError(message, code="headers_too_large", status=431)


def new_key() -> str:
    """A key that nobody can guess (256 bits)."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def hash_of(key: str) -> bytes:
    """What is kept of a key: SHA-256, 32 bytes; enough for a key that is random itself."""
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_openness(settings: Settings) -> None:
    """Refuse to serve what should not be served.

    Raises:
        ConfigError: beyond this machine without a key; in several processes.
    """
    if settings.workers > 1:
        raise ConfigError(
            "setting workers: turns, bets and claims are kept in one process; serve with 1 worker (one core relays "
            "thousands of requests a second) or several proxies with agents of their own"
        )
    if not is_loopback(settings.host) and not settings.keys:
        raise ConfigError(
            f"setting host: {settings.host!r} is reachable from outside, and whoever reaches the proxy decides what "
            "runs ahead: make a key first (`agentspec keys new NAME`), or serve on 127.0.0.1"
        )
