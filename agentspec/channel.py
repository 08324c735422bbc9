"""The messages between the proxy and a runtime (the agent's process), as JSON text frames of a WebSocket.

1. The runtime says `Hello` with its secret id and its tools; the proxy answers `Welcome`.
2. The proxy orders `RunAhead`; the runtime answers `Ran` when the run is over, or `Refused`.
3. When the agent really calls the tool, the runtime reserves the run and sends `Ask`; the proxy, which sees every
   relayed call and so every write, answers `Grant`. Only a granted result is handed over.
4. The runtime reports every real call of a declared tool as `Claimed`; the proxy answers `Session` when it knows
   whose call that was. `Cancel` drops a run; `Voided` tells of runs that a write in the agent's process made stale.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agentspec.effects import Effect, ToolSpec
from agentspec.sandbox import Isolation, Sandbox

PROTOCOL = 1
PATH = "/agentspec/channel"


class ToolInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A declared tool as it goes over the channel. `loose`: its owner decides which calls are the same."""

    name: str
    effect: str
    fingerprint: str
    reads: list[str]
    writes: list[str]
    stable_for_s: float | None
    egress: bool
    parameters: dict[str, Any]
    loose: bool = False
    needs_approval: bool = False
    ahead: bool = True
    isolation: str = "thread"
    workspace: str | None = None
    address: str | None = None
    network: bool = False

    @classmethod
    def of(cls, spec: ToolSpec, loose: bool) -> ToolInfo:
        """The message form of a declaration."""
        return cls(
            name=spec.name,
            effect=spec.effect.value,
            fingerprint=spec.fingerprint,
            reads=sorted(spec.reads),
            writes=sorted(spec.writes),
            stable_for_s=spec.stable_for_s,
            egress=spec.egress,
            parameters=spec.parameters,
            loose=loose,
            needs_approval=spec.needs_approval,
            ahead=spec.ahead,
            isolation=spec.sandbox.isolation,
            workspace=spec.sandbox.workspace,
            address=spec.sandbox.address,
            network=spec.sandbox.network,
        )

    def spec(self) -> ToolSpec:
        """The declaration.

        Raises:
            ConfigError: it contradicts itself.
            ValueError: no such effect or place.
        """
        return ToolSpec(
            name=self.name,
            effect=Effect(self.effect),
            fingerprint=self.fingerprint,
            reads=frozenset(self.reads),
            writes=frozenset(self.writes),
            stable_for_s=self.stable_for_s,
            egress=self.egress,
            parameters=self.parameters,
            needs_approval=self.needs_approval,
            ahead=self.ahead,
            sandbox=Sandbox(
                Isolation(self.isolation), workspace=self.workspace, address=self.address, network=self.network
            ),
        )


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """Runtime: who I am and what tools I hold. Sent again whenever the tools change.

    `prefixed`: requests may put a name of their own before those of the tools, as MCP clients do. `tells`: results of
    runs ahead may be told, to predict what comes after them.
    """

    runtime: str
    tools: list[ToolInfo]
    protocol: int = PROTOCOL
    prefixed: bool = False
    tells: bool = False


class Ran(msgspec.Struct, tag="ran", frozen=True):
    """Runtime: a run ahead is over after `latency_s`; `error` says why it failed.

    `result`: a copy of what it gave, as text, where that was asked for and may be told.
    """

    bet: str
    latency_s: float
    error: str | None = None
    result: str | None = None


class Refused(msgspec.Struct, tag="refused", frozen=True):
    """Runtime: this call cannot run ahead here, for this reason."""

    bet: str
    reason: str


class Ask(msgspec.Struct, tag="ask", frozen=True):
    """Runtime: the agent makes this bet's call now; may its result be handed over?"""

    ask: int
    bet: str


class Claimed(msgspec.Struct, tag="claimed", frozen=True):
    """Runtime: a real call of a declared tool is over.

    `outcome` is hit, joined or miss; `bet` the run it took or wanted; `latency_s` how long the tool ran (ahead, on a
    hit), `waited_s` how long the agent waited for the result; `arguments` the canonical JSON of the call.
    """

    claim: int
    tool: str
    arguments: str | None
    outcome: str
    bet: str | None
    latency_s: float
    waited_s: float
    reason: str


class Voided(msgspec.Struct, tag="voided", frozen=True):
    """Runtime: these runs will never be handed over, as `outcome` (stale, failed, unclaimed)."""

    bets: list[str]
    outcome: str
    reason: str


class Welcome(msgspec.Struct, tag="welcome", frozen=True):
    """Proxy: you are known; requests under your id will be predicted for. `upstream` is the endpoint behind me."""

    upstream: str
    protocol: int = PROTOCOL


class RunAhead(msgspec.Struct, tag="run", frozen=True):
    """Proxy: run this call ahead and keep the result for `limit_s` seconds. `tell`: send a copy of it as well."""

    bet: str
    trajectory: str
    tool: str
    arguments: dict[str, Any]
    limit_s: float
    tell: bool = False


class Cancel(msgspec.Struct, tag="cancel", frozen=True):
    """Proxy: drop this run."""

    bet: str
    reason: str


class Grant(msgspec.Struct, tag="grant", frozen=True):
    """Proxy: the answer to `Ask`."""

    ask: int
    ok: bool
    reason: str = ""


class Session(msgspec.Struct, tag="session", frozen=True):
    """Proxy: that claim was a call of this trajectory; its context may serve later runs ahead."""

    claim: int
    trajectory: str


FromRuntime = Hello | Ran | Refused | Ask | Claimed | Voided
FromProxy = Welcome | RunAhead | Cancel | Grant | Session

_encoder = msgspec.json.Encoder()
_from_runtime: msgspec.json.Decoder[FromRuntime] = msgspec.json.Decoder(FromRuntime)
_from_proxy: msgspec.json.Decoder[FromProxy] = msgspec.json.Decoder(FromProxy)


def encode(message: FromRuntime | FromProxy) -> str:
    """A message as the text of one frame."""
    return _encoder.encode(message).decode()


def decode_from_runtime(frame: str | bytes) -> FromRuntime:
    """A frame that a runtime sent.

    Raises:
        msgspec.DecodeError: it is no message of this protocol.
    """
    return _from_runtime.decode(frame)


def decode_from_proxy(frame: str | bytes) -> FromProxy:
    """A frame that the proxy sent.

    Raises:
        msgspec.DecodeError: it is no message of this protocol.
    """
    return _from_proxy.decode(frame)
