"""Settings of the dashboard: whether it is served, and to whom."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings


class DashboardSettings(BaseSettings):
    """What an operator may say of the dashboard. Part of `Settings`."""

    dashboard: bool = Field(True, description="serve the dashboard at /dashboard")
    dashboard_beyond_loopback: bool = Field(
        False, description="without keys: show the dashboard to whoever reaches it, not to this machine only"
    )
