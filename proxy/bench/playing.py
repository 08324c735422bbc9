"""A recording played by a real agent with real tools: straight to the endpoint, or through a proxy."""

from __future__ import annotations

from contextlib import closing

import openai

from agentspec.proxy.replay.agent import Play, Tool, play
from agentspec.proxy.replay.recordings import Library, Recording
from agentspec.proxy.replay.tau2_tools import DeclaredTool, Toolbox
from agentspec.tools_sandbox.connect import connect
from agentspec.tools_sandbox.declare import speculate

STABLE_FOR_S = 30.0
SCOPE = "replay"
"""All tasks are one end user's: what one teaches may be recalled in the next, as far as memory does that at all."""


class Direct:
    """An agent that goes straight to the endpoint, with plain tools."""

    def __init__(self, endpoint: str, tools: Toolbox, *, parallel_tools: bool = False, api_key: str = "none") -> None:
        self._client = openai.OpenAI(base_url=endpoint, api_key=api_key, max_retries=0)
        self.tools = tools.plain
        self._parallel_tools = parallel_tools

    def play(self, recording: Recording, library: Library) -> Play:
        """Play a recording to its end."""
        return play(recording, library, self._client, self.tools, parallel_tools=self._parallel_tools)

    def client_for(self, session: str) -> openai.OpenAI:
        """The client for a conversation of this name, which nobody is told here."""
        return self._client

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class Ahead:
    """An agent that goes through a proxy, with declared tools."""

    def __init__(self, proxy: str, tools: Toolbox, api_key: str = "none") -> None:
        self.tools = {name: speculative(tool) for name, tool in tools.declared.items()}
        self._runtime = connect(proxy, tools=self.tools.values())
        self._client = openai.OpenAI(
            base_url=self._runtime.base_url, api_key=api_key, max_retries=0, http_client=self._runtime.http_client()
        )

    def play(self, recording: Recording, library: Library) -> Play:
        """Play a recording to its end, as a session of its own."""
        return play(recording, library, self.client_for(recording.model), self.tools)

    def client_for(self, session: str) -> openai.OpenAI:
        """The client for a conversation of this name."""
        headers = {"x-agentspec-session": session, "x-agentspec-scope": SCOPE}
        return self._client.with_options(default_headers=headers)

    def close(self) -> None:
        """Leave the proxy, and close the connections."""
        self._client.close()
        self._runtime.close()


def played_direct(
    recording: Recording, library: Library, endpoint: str, tools: Toolbox, *, parallel_tools: bool = False
) -> Play:
    """One recording, straight to the endpoint."""
    with closing(Direct(endpoint, tools, parallel_tools=parallel_tools)) as agent:
        return agent.play(recording, library)


def played_ahead(recording: Recording, library: Library, proxy: str, tools: Toolbox) -> Play:
    """One recording, through a proxy."""
    with closing(Ahead(proxy, tools)) as agent:
        return agent.play(recording, library)


def speculative(tool: DeclaredTool) -> Tool:
    """The tool under `@speculate`, as it is declared."""
    stable_for = STABLE_FOR_S if tool.effect == "read" else None
    return speculate(tool.function, effect=tool.effect, reads=tool.reads, writes=tool.writes, stable_for=stable_for)
