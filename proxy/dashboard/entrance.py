"""Who may look. With keys of the proxy's own each key sees its tenant and nothing else; without, this machine sees all.

A key travels as a header that the page itself adds, so no other page can borrow it. What changes something asks for a
header besides that a foreign page cannot send without being asked first, which nobody answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentspec.config import Settings
from agentspec.errors import RequestError
from agentspec.proxy.asgi import Scope, head_of, told
from agentspec.proxy.doors import Doors, is_loopback

CHANGES = b"x-agentspec-dashboard"
"""The header that a request which changes something carries."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks. `tenant`: whose rows may be seen; None: those of everybody, on a proxy without keys."""

    tenant: str | None

    @property
    def sees_all(self) -> bool:
        """Whether this is the operator of the machine."""
        return self.tenant is None

    def of(self, asked: str | None) -> str | None:
        """The tenant that is meant: one's own, or of the operator's the one that was asked for."""
        return asked if self.tenant is None else self.tenant


class Entrance:
    """Checks each request to the dashboard. `keyed`: viewers are tenants, known by their keys."""

    def __init__(self, settings: Settings, doors: Doors) -> None:
        self._doors = doors
        self.keyed = bool(settings.keys)
        self._anywhere = settings.dashboard_beyond_loopback

    def check(self, scope: Scope) -> None:
        """Whether anything at all may be shown here.

        Raises:
            RequestError: asked under a borrowed name or by another page, or from beyond this machine without keys.
        """
        head = head_of(scope["headers"])
        self._doors.refuse_strangers(head)
        if not (self.keyed or self._anywhere or _from_here(scope, head)):
            raise RequestError(
                "without keys the dashboard is served to this machine only: make a key (`agentspec keys new NAME`), "
                "or set dashboard_beyond_loopback where something else guards it",
                code="forbidden",
                status=403,
            )

    def viewer(self, scope: Scope) -> Viewer:
        """Who asks for data.

        Raises:
            RequestError: another site's page asks; a key is needed and none of ours is shown.
        """
        if told(head_of(scope["headers"]), b"sec-fetch-site") == "cross-site":
            raise RequestError("another site's page may not ask", code="forbidden", status=403)
        return Viewer(self._doors.tenant(scope["headers"]) if self.keyed else None)

    def check_change(self, scope: Scope) -> None:
        """Whether this may change something.

        Raises:
            RequestError: it may come from a page that is not ours.
        """
        head = head_of(scope["headers"])
        kind = (told(head, b"content-type") or "").partition(";")[0].strip().lower()
        if CHANGES not in head or kind != "application/json":
            raise RequestError(
                "this is asked by the dashboard itself: send JSON and the header x-agentspec-dashboard",
                code="forbidden",
                status=403,
            )


def _from_here(scope: Scope, head: Mapping[bytes, bytes]) -> bool:
    """Whether the connection comes from this machine, and under one of its own names."""
    client = scope.get("client")
    host = (told(head, b"host") or "").lower()
    name = host if host.endswith("]") else host.rsplit(":", 1)[0]
    return (client is None or is_loopback(client[0])) and is_loopback(name.strip("[]"))
