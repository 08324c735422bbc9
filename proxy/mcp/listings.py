"""What several servers list, as one list; what one server lists, as it is, page by page."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError

from agentspec.proxy.mcp.sessions import AgentSession
from agentspec.proxy.mcp.upstream import MOST_PAGES, Upstream

log = logging.getLogger("agentspec.mcp")

PageT = TypeVar("PageT", bound=types.PaginatedResult)
Fetch = Callable[[Client, str | None], Awaitable[PageT]]
Can = Callable[[types.ServerCapabilities], Any]


async def tools(session: AgentSession, cursor: str | None) -> types.ListToolsResult:
    """The tools, under the names that the agent sees."""

    async def fetch(client: Client, cursor: str | None) -> types.ListToolsResult:
        return await client.list_tools(cursor=cursor)

    if len(session.upstreams) == 1:
        return await _page(session.upstreams[0], cursor, fetch)
    found: list[types.Tool] = []
    for upstream, page in await _all(session.upstreams, fetch, lambda can: can.tools):
        found += [tool.model_copy(update={"name": session.shown_name(upstream, tool.name)}) for tool in page.tools]
    return types.ListToolsResult(tools=list({tool.name: tool for tool in reversed(found)}.values())[::-1])


async def prompts(session: AgentSession, cursor: str | None) -> types.ListPromptsResult:
    """The prompts, under the names that the agent sees."""

    async def fetch(client: Client, cursor: str | None) -> types.ListPromptsResult:
        return await client.list_prompts(cursor=cursor)

    if len(session.upstreams) == 1:
        return await _page(session.upstreams[0], cursor, fetch)
    found: list[types.Prompt] = []
    for upstream, page in await _all(session.upstreams, fetch, lambda can: can.prompts):
        found += [one.model_copy(update={"name": session.shown_name(upstream, one.name)}) for one in page.prompts]
    return types.ListPromptsResult(prompts=found)


async def resources(session: AgentSession, cursor: str | None) -> types.ListResourcesResult:
    """The resources; their URIs are their names, with several servers too."""

    async def fetch(client: Client, cursor: str | None) -> types.ListResourcesResult:
        return await client.list_resources(cursor=cursor)

    if len(session.upstreams) == 1:
        return await _page(session.upstreams[0], cursor, fetch)
    pages = await _all(session.upstreams, fetch, lambda can: can.resources)
    return types.ListResourcesResult(resources=[one for _, page in pages for one in page.resources])


async def templates(session: AgentSession, cursor: str | None) -> types.ListResourceTemplatesResult:
    """The templates of resources."""

    async def fetch(client: Client, cursor: str | None) -> types.ListResourceTemplatesResult:
        return await client.list_resource_templates(cursor=cursor)

    if len(session.upstreams) == 1:
        return await _page(session.upstreams[0], cursor, fetch)
    pages = await _all(session.upstreams, fetch, lambda can: can.resources)
    return types.ListResourceTemplatesResult(
        resource_templates=[one for _, page in pages for one in page.resource_templates]
    )


async def home_of(session: AgentSession, uri: str) -> Upstream:
    """The server of a resource: the one that lists it or has a template; else the first that has resources.

    Raises:
        MCPError: none has resources.
    """
    if len(session.upstreams) == 1:
        return session.upstreams[0]
    for upstream in (able := _able(session.upstreams, lambda can: can.resources)):
        pages = await _pages(upstream, lambda client, cursor: client.list_resources(cursor=cursor))
        if any(one.uri == uri for page in pages for one in page.resources):
            return upstream
    for upstream in able:
        pages_ = await _pages(upstream, lambda client, cursor: client.list_resource_templates(cursor=cursor))
        begins = [one.uri_template.partition("{")[0] for page in pages_ for one in page.resource_templates]
        if uri in begins or any(begin and uri.startswith(begin) for begin in begins):
            return upstream
    if not able:
        raise MCPError(types.INVALID_PARAMS, f"there is no resource {uri!r} here")
    return able[0]


async def _page(upstream: Upstream, cursor: str | None, fetch: Fetch[PageT]) -> PageT:
    return await upstream.request(lambda client: fetch(client, cursor))


async def _pages(upstream: Upstream, fetch: Fetch[PageT]) -> list[PageT]:
    """All pages; none where the server is away or has no such list."""
    pages: list[PageT] = []
    cursor: str | None = None
    try:
        for _ in range(MOST_PAGES):
            pages.append(await _page(upstream, cursor, fetch))
            cursor = pages[-1].next_cursor
            if cursor is None:
                break
    except MCPError as error:
        if error.code != types.METHOD_NOT_FOUND:
            log.warning("%s", error)
    return pages


async def _all(upstreams: Sequence[Upstream], fetch: Fetch[PageT], can: Can) -> list[tuple[Upstream, PageT]]:
    return [(one, page) for one in _able(upstreams, can) for page in await _pages(one, fetch)]


def _able(upstreams: Sequence[Upstream], can: Can) -> list[Upstream]:
    """The servers that have such things. One that is away may have; one that still starts tells when it is there."""
    return [
        one
        for one in upstreams
        if (one.client is None and not one.starting) or (one.client and can(one.client.server_capabilities))
    ]
