"""Settings: flags over environment over file over defaults.

Environment: `AGENTSPEC_` + the name in capitals (`AGENTSPEC_UPSTREAM`). File: `agentspec.toml` in the working
directory, or the one named by `--config` / `AGENTSPEC_CONFIG`, with the same names as keys.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from agentspec.dashboard_settings import DashboardSettings
from agentspec.errors import ConfigError
from agentspec.gating.brake_settings import BrakeSettings, ProbeBudget
from agentspec.sight_settings import SightSettings

ENV_PREFIX = "AGENTSPEC_"
DEFAULT_FILE = "agentspec.toml"


class Engine(StrEnum):
    """What kind of endpoint the upstream is; decides what a probe is."""

    OPENAI = "openai"
    VLLM = "vllm"
    SGLANG = "sglang"
    AGENTSPEC = "agentspec"
    ANTHROPIC = "anthropic"

    @property
    def hosted(self) -> bool:
        """Whether a probe is a billed request."""
        return self in (Engine.OPENAI, Engine.ANTHROPIC)


class MemoryScope(StrEnum):
    """Within what argument values are recalled: an end user (by default a trajectory), or all of a tenant."""

    HEADER = "header"
    TENANT = "tenant"


def endpoint_url(value: str) -> str:
    """An endpoint's base URL without the slash at its end.

    Raises:
        ValueError: it is none, or holds a password.
    """
    value = value.strip().rstrip("/")
    parts = urlsplit(value)
    try:
        named = parts.hostname and parts.hostname.encode("idna")
        usable = parts.scheme in ("http", "https") and named and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or any(char.isspace() for char in value):
        raise ValueError(f"{value!r} is no URL; write for example http://127.0.0.1:8000/v1")
    if parts.username or parts.password:
        raise ValueError("an endpoint's URL must hold no password; use upstream_key (AGENTSPEC_UPSTREAM_KEY)")
    return value


def header_text(value: SecretStr | None) -> SecretStr | None:
    """A key as it goes into a header; None for an empty one.

    Raises:
        ValueError: it holds control characters.
    """
    if value is None:
        return None
    key = value.get_secret_value().strip()  # keys come from files that end in a newline
    if not key.isprintable():
        raise ValueError("the key holds control characters")
    return SecretStr(key) if key else None


def state_folder() -> Path:
    """Where this user's proxies keep what outlives them."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "agentspec"


def default_database() -> str:
    """SQLite in the user's state folder."""
    return f"sqlite:///{state_folder() / 'ledger.sqlite3'}"


def default_memory_database() -> str:
    """SQLite beside the ledger."""
    return f"sqlite:///{state_folder() / 'memory.sqlite3'}"


class UpstreamSettings(BaseModel):
    """One of several endpoints: `[[upstreams]]` in the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    kind: Engine = Engine.OPENAI
    models: tuple[str, ...]
    """Patterns of model names, as of file names: `claude-*`. The first upstream with a fitting one is asked."""
    key: SecretStr | None = None
    key_env: str | None = None
    """The environment variable that holds the key."""
    budget: ProbeBudget = ProbeBudget()

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: str) -> str:
        return endpoint_url(value)

    @field_validator("key")
    @classmethod
    def _is_header_text(cls, value: SecretStr | None) -> SecretStr | None:
        return header_text(value)

    @model_validator(mode="after")
    def _has_its_key(self) -> UpstreamSettings:
        if self.key_env is not None and not os.environ.get(self.key_env):
            raise ValueError(f"the environment variable {self.key_env} (key_env of {self.url}) is not set")
        if not self.models:
            raise ValueError(f'{self.url} needs the models that it serves: models = ["claude-*"]')
        return self

    @property
    def secret(self) -> SecretStr | None:
        """The key, wherever it is kept."""
        return self.key or (header_text(SecretStr(os.environ[self.key_env])) if self.key_env else None)


class KeySettings(BaseModel):
    """A key of the proxy's own: `[[keys]]` in the file, as `agentspec keys new` prints it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tenant: str = Field(min_length=1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Settings(BrakeSettings, DashboardSettings, SightSettings):
    """Everything an operator may set."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True)

    upstream: str = Field("", description="base URL of the model endpoint, with its /v1")
    upstream_key: SecretStr | None = Field(
        None, description="the endpoint's key; without it the agent's own goes through"
    )
    engine: Engine = Field(
        Engine.OPENAI, description="its kind: openai | anthropic (hosted) | vllm | sglang | agentspec"
    )
    upstreams: tuple[UpstreamSettings, ...] = Field(
        (), description="more endpoints, by model name: [[upstreams]] with url, kind, models, key or key_env, budget"
    )
    keys: tuple[KeySettings, ...] = Field(
        (), description="keys that agents must show, hashed: [[keys]] with tenant, sha256 (`agentspec keys new`)"
    )
    allowed_hosts: tuple[str, ...] = Field(
        (), description="names under which the proxy may be asked, beside this machine's"
    )
    allowed_origins: tuple[str, ...] = Field((), description="web pages that may ask, as https://host; none by default")
    workers: int = Field(1, ge=1, description="processes; more than one is refused until they share their state")
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8787, ge=0, le=65535, description="port to listen on (0: any free one)")
    database: str = Field(default_factory=default_database, description="SQLAlchemy URL of the ledger")
    speculation: bool = Field(True, description="false: relay and trace only")
    probe: bool = Field(True, description="predict by forked probes (hosted endpoints: see probe_money_cap_usd)")
    probe_tokens: int = Field(64, ge=8, description="most tokens that a probe may generate")
    probe_step_chars: int = Field(60, ge=1, description="probe again when this much text or reasoning has come")
    drafts: bool = Field(True, description="offer what probes wrote to the engine, as drafts for the running turn")
    drafts_shared: bool = Field(False, description="also to an engine that drafts from them for all (sglang's corpus)")
    probe_money_cap_usd: float = Field(0.0, ge=0, description="hosted endpoints: what probes may cost per day; 0: none")
    price_input_usd_per_mtok: float = Field(0.0, ge=0, description="hosted endpoints: price of a million input tokens")
    price_output_usd_per_mtok: float = Field(
        0.0, ge=0, description="hosted endpoints: price of a million output tokens"
    )
    memory: bool = Field(True, description="predict from what happened before, and learn from what happens")
    memory_database: str = Field(
        default_factory=default_memory_database, description="SQLAlchemy URL of memory; empty: nothing is kept on disk"
    )
    memory_idle_s: float = Field(30.0, gt=0, description="a trajectory is learnt when it has been quiet for so long")
    memory_scope: MemoryScope = Field(
        MemoryScope.HEADER, description="values are recalled within: header (x-agentspec-scope) | tenant"
    )
    memory_trajectories: int = Field(20_000, gt=0, description="trajectories that are kept of each tenant, the newest")
    bet_limit_s: float = Field(120.0, gt=0, description="seconds that an unclaimed result is kept")
    tools_off: tuple[str, ...] = Field((), description='tools that never run ahead, as JSON: ["search_web"]')
    write_window_s: float = Field(900.0, gt=0, description="longest time that a relayed write holds reads back")
    harmless_tools: tuple[str, ...] = Field(
        (),
        description='tools without a declaration that change nothing, as JSON: ["final_answer", "transfer_to_sales"]',
    )
    upstream_timeout_s: float = Field(600.0, gt=0, description="longest silence of the endpoint before we give up")
    max_body_bytes: int = Field(64 * 2**20, gt=0, description="largest request body")
    max_header_bytes: int = Field(64 * 2**10, gt=0, description="largest head of a request")

    _file: ClassVar[Mapping[str, Any]] = {}

    @field_validator("upstream")
    @classmethod
    def _is_url(cls, value: str) -> str:
        return endpoint_url(value) if value else ""

    @field_validator("upstream_key")
    @classmethod
    def _is_header_text(cls, value: SecretStr | None) -> SecretStr | None:
        return header_text(value)

    @model_validator(mode="after")
    def _cap_needs_prices(self) -> Settings:
        priced = self.price_input_usd_per_mtok > 0 and self.price_output_usd_per_mtok > 0
        hosted = self.engine.hosted or any(one.kind.hosted for one in self.upstreams)
        if hosted and self.probe_money_cap_usd > 0 and not priced:
            raise ValueError(
                "probe_money_cap_usd needs price_input_usd_per_mtok and price_output_usd_per_mtok to count against it"
            )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, _FileSource(settings_cls)

    def probes_allowed(self, engine: Engine) -> bool:
        """Whether probes may be sent to such an endpoint at all."""
        return self.speculation and self.probe and (not engine.hosted or self.probe_money_cap_usd > 0)


class _FileSource(PydanticBaseSettingsSource):
    """The TOML file's values, as read by `load`."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return Settings._file.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return dict(Settings._file)


def load(flags: Mapping[str, Any] | None = None, file: Path | None = None) -> Settings:
    """Read the settings; flags that are None were not given.

    Raises:
        ConfigError: a value does not fit, a key is unknown, the file is missing or no TOML.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    Settings._file = _read_file(file)
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        why = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            why = "there is no such setting; `agentspec config show` lists them"
        raise ConfigError(f"setting {name}: {why}" if name else why) from error
    except SettingsError as error:
        raise ConfigError(f'{error}: lists are written as JSON, for example ["final_answer"]') from error
    finally:
        Settings._file = {}


def sources(flags: Mapping[str, Any] | None = None, file: Path | None = None) -> dict[str, str]:
    """Where each setting's value comes from: `flag`, `environment`, `file` or `default`."""
    in_file = _read_file(file)
    found = {}
    for name in Settings.model_fields:
        if (flags or {}).get(name) is not None:
            found[name] = "flag"
        elif f"{ENV_PREFIX}{name.upper()}" in {key.upper() for key in os.environ}:
            found[name] = "environment"
        else:
            found[name] = "file" if name in in_file else "default"
    return found


def _read_file(file: Path | None) -> Mapping[str, Any]:
    named = file or (Path(os.environ[f"{ENV_PREFIX}CONFIG"]) if f"{ENV_PREFIX}CONFIG" in os.environ else None)
    path = named or Path(DEFAULT_FILE)
    if named is None and not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration file {path} is not valid TOML: {error}") from error
