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
NamedT = TypeVar("NamedT", types.Tool, types.Prompt)
Pages = list[tuple[Upstream, PageT]]
Fetch = Callable[[Client, str | None], Awaitable[PageT]]
Can = Callable[[types.ServerCapabilities], Any]


async def tools(session: AgentSession, cursor: str | None) -> types.ListToolsResult:
    """The tools, under the names that the agent sees."""

    def joined(pages: Pages[types.ListToolsResult]) -> types.ListToolsResult:
        found = [_shown(session, upstream, tool) for upstream, page in pages for tool in page.tools]
        return types.ListToolsResult(tools=list({tool.name: tool for tool in reversed(found)}.values())[::-1])

    return await _listed(session, cursor, lambda client, at: client.list_tools(cursor=at), _has_tools, joined)


async def prompts(session: AgentSession, cursor: str | None) -> types.ListPromptsResult:
    """The prompts, under the names that the agent sees."""

    def joined(pages: Pages[types.ListPromptsResult]) -> types.ListPromptsResult:
        found = [_shown(session, upstream, one) for upstream, page in pages for one in page.prompts]
        return types.ListPromptsResult(prompts=found)

    return await _listed(session, cursor, lambda client, at: client.list_prompts(cursor=at), _has_prompts, joined)


async def resources(session: AgentSession, cursor: str | None) -> types.ListResourcesResult:
    """The resources; their URIs are their names, with several servers too."""

    def joined(pages: Pages[types.ListResourcesResult]) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[one for _, page in pages for one in page.resources])

    return await _listed(session, cursor, _fetch_resources, _has_resources, joined)


async def templates(session: AgentSession, cursor: str | None) -> types.ListResourceTemplatesResult:
    """The templates of resources."""

    def joined(pages: Pages[types.ListResourceTemplatesResult]) -> types.ListResourceTemplatesResult:
        found = [one for _, page in pages for one in page.resource_templates]
        return types.ListResourceTemplatesResult(resource_templates=found)

    return await _listed(session, cursor, _fetch_templates, _has_resources, joined)


async def home_of(session: AgentSession, uri: str) -> Upstream:
    """The server of a resource: the one that lists it or has a template; else the first that has resources.

    Raises:
        MCPError: none has resources.
    """
    if len(session.upstreams) == 1:
        return session.upstreams[0]
    for upstream in (able := _able(session.upstreams, _has_resources)):
        pages = await _pages(upstream, _fetch_resources)
        if any(one.uri == uri for page in pages for one in page.resources):
            return upstream
    for upstream in able:
        pages_ = await _pages(upstream, _fetch_templates)
        begins = [one.uri_template.partition("{")[0] for page in pages_ for one in page.resource_templates]
        if uri in begins or any(begin and uri.startswith(begin) for begin in begins):
            return upstream
    if not able:
        raise MCPError(types.INVALID_PARAMS, f"there is no resource {uri!r} here")
    return able[0]


def _has_tools(can: types.ServerCapabilities) -> Any:
    return can.tools


def _has_prompts(can: types.ServerCapabilities) -> Any:
    return can.prompts


def _has_resources(can: types.ServerCapabilities) -> Any:
    return can.resources


async def _fetch_resources(client: Client, cursor: str | None) -> types.ListResourcesResult:
    return await client.list_resources(cursor=cursor)


async def _fetch_templates(client: Client, cursor: str | None) -> types.ListResourceTemplatesResult:
    return await client.list_resource_templates(cursor=cursor)


def _shown(session: AgentSession, upstream: Upstream, one: NamedT) -> NamedT:
    """A tool or a prompt under the name that the agent sees."""
    return one.model_copy(update={"name": session.shown_name(upstream, one.name)})


async def _listed(
    session: AgentSession,
    cursor: str | None,
    fetch: Fetch[PageT],
    can: Can,
    joined: Callable[[Pages[PageT]], PageT],
) -> PageT:
    """The one server's list, page by page; of several servers one list, all on one page."""
    if len(session.upstreams) == 1:
        return await _page(session.upstreams[0], cursor, fetch)
    return joined([(one, page) for one in _able(session.upstreams, can) for page in await _pages(one, fetch)])


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


def _able(upstreams: Sequence[Upstream], can: Can) -> list[Upstream]:
    """The servers that have such things. One that is away may have; one that still starts tells when it is there."""
    return [
        one
        for one in upstreams
        if (one.client is None and not one.starting) or (one.client and can(one.client.server_capabilities))
    ]
