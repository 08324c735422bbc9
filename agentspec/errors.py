"""The error tree, all of it.

AgentspecError
├── ConfigError        at start: a setting, port, key or extra is wrong; one line that says what to do
├── RequestError       the agent's request is at fault: a 4xx in the API's own error shape
├── UpstreamError      the endpoint is at fault or away: a 5xx of ours; answers of the endpoint pass unchanged
└── SpeculationError   a bet went wrong: caught at the root of the bet, counted, never seen by the agent
    └── ToolRefused    this tool cannot run ahead (not declared, no context, wrong loop, stale)
"""

from __future__ import annotations


class AgentspecError(Exception):
    """Root of every error that agentspec raises itself."""


class ConfigError(AgentspecError):
    """A setting is wrong. The message is one line and says what to change."""


class ApiError(AgentspecError):
    """An error that the agent sees, in the shape of the API that it speaks (`WireApi.error_body`).

    Args:
        message: one line that says what is wrong and what to do.
        code: stable, for programs (`invalid_json`, `upstream_unreachable`, …).
        status: HTTP status.
    """

    type = "api_error"

    def __init__(self, message: str, *, code: str, status: int) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status

    def body(self) -> dict[str, object]:
        """The JSON body of the answer in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`."""
        return {"error": {"message": self.message, "type": self.type, "param": None, "code": self.code}}


class RequestError(ApiError):
    """The request is at fault (4xx)."""

    type = "invalid_request_error"

    def __init__(self, message: str, *, code: str = "invalid_request", status: int = 400) -> None:
        super().__init__(message, code=code, status=status)


class UpstreamError(ApiError):
    """The endpoint could not be reached or broke off before it answered (502, 504)."""

    def __init__(self, message: str, *, code: str = "upstream_unreachable", status: int = 502) -> None:
        super().__init__(message, code=code, status=status)


class SpeculationError(AgentspecError):
    """A bet went wrong. Caught in one place, counted, never seen by the agent."""


class ToolRefused(SpeculationError):
    """This call may not run ahead; the message is the reason that the books keep."""
