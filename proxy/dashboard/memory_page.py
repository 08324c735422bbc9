"""What memory keeps of whom and has learnt, and making it forget."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillGoing
from dataclasses import asdict
from typing import Any

from agentspec.errors import RequestError
from agentspec.memory.in_words import in_words
from agentspec.memory.keeper import Keeper
from agentspec.memory.recall import Recall
from agentspec.proxy.dashboard.entrance import Viewer
from agentspec.recollection import Memories

FORGET_S = 30.0
"""Longest time that a deletion is waited for; it goes on after that."""
LISTED = 100


def memory_of(memories: Memories | None, viewer: Viewer, asked: str | None) -> dict[str, Any]:
    """What is kept and learnt of one tenant: the viewer's own, or of the operator's the one asked for."""
    if not isinstance(memories, Keeper):
        return {"on": memories is not None, "tenants": [], "tenant": None}
    tenants = _tenants(memories, viewer)
    tenant = viewer.of(asked if asked in tenants else next(iter(tenants), None))
    found: dict[str, Any] = {"on": True, "kept": memories.store is not None, "tenants": tenants, "tenant": tenant}
    if tenant is None:
        return found
    memory = memories.of(tenant)
    if isinstance(memory, Recall):
        found["learnt"] = asdict(in_words(memory))
    if (store := memories.store) is not None:
        found["stats"] = asdict(store.stats(tenant))
        found["scopes"] = store.listing.scopes(tenant, LISTED)
        found["trajectories"] = store.listing.trajectories(tenant, LISTED)
    return found


def _tenants(keeper: Keeper, viewer: Viewer) -> list[str]:
    if viewer.tenant is not None:
        return [viewer.tenant]
    return keeper.store.tenants() if keeper.store is not None else []


def forget(memories: Memories | None, viewer: Viewer, asked: dict[str, Any]) -> int:
    """Forget a trajectory, an end user (scope), or everything of a tenant; how many trajectories that were.

    Raises:
        RequestError: it does not say what; memory is off; it takes longer than `FORGET_S`.
    """
    if not isinstance(memories, Keeper):
        raise RequestError("memory is off, so there is nothing to forget", code="memory_off", status=409)
    tenant = viewer.of(asked.get("tenant"))
    what = {name: asked[name] for name in ("trajectory", "scope", "everything") if asked.get(name)}
    if not isinstance(tenant, str) or len(what) != 1:
        raise RequestError("say what to forget: a trajectory, a scope, or everything", code="bad_request", status=400)
    try:
        return _ask(memories, tenant, what).result(FORGET_S)
    except StillGoing as error:
        raise RequestError("memory is busy; it will forget this soon", code="busy", status=503) from error


def _ask(keeper: Keeper, tenant: str, what: dict[str, Any]) -> Future[int]:
    if "trajectory" in what:
        return keeper.forget_trajectory(tenant, str(what["trajectory"]))
    if "scope" in what:
        return keeper.forget_scope(tenant, str(what["scope"]))
    return keeper.forget_tenant(tenant)
