"""Settings: which source wins, and one line for whatever is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentspec.config import Engine, Settings, load, sources
from agentspec.errors import ConfigError


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    for name in [name for name in os.environ if name.upper().startswith("AGENTSPEC_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def refused(flags: dict[str, Any] | None = None, file: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        load(flags, file)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_flags_over_environment_over_file_over_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "agentspec.toml").write_text("port = 1\nprobe_tokens = 11\nbet_limit_s = 5\nspeculation = false\n")
    monkeypatch.setenv("AGENTSPEC_PORT", "2")
    monkeypatch.setenv("AGENTSPEC_PROBE_TOKENS", "22")
    settings = load({"port": 3, "host": None})
    assert (settings.port, settings.probe_tokens, settings.bet_limit_s, settings.speculation) == (3, 22, 5.0, False)
    assert settings.host == "127.0.0.1"
    origin = sources({"port": 3, "host": None})
    assert [origin[name] for name in ("port", "probe_tokens", "bet_limit_s", "host")] == [
        "flag",
        "environment",
        "file",
        "default",
    ]
    assert set(origin) == set(Settings.model_fields)


def test_a_file_is_named_by_flag_over_environment_over_the_working_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number, name in enumerate(["agentspec", "env", "flag"], 1):
        (tmp_path / f"{name}.toml").write_text(f"port = {number}")
    assert load().port == 1
    monkeypatch.setenv("AGENTSPEC_CONFIG", "env.toml")
    assert load().port == 2
    assert load({}, Path("flag.toml")).port == 3
    assert (sources({}, Path("flag.toml"))["port"], load().port) == ("file", 2)


def test_false_and_zero_flags_are_given_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTSPEC_PROBE", "true")
    monkeypatch.setenv("AGENTSPEC_PORT", "5")
    settings = load({"probe": False, "port": 0})
    assert (settings.probe, settings.port) == (False, 0)


def test_the_file_of_one_reading_does_not_stay_for_the_next(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("port = 77")
    assert load({}, tmp_path / "x.toml").port == 77
    assert load().port == 8787
    (tmp_path / "bad.toml").write_text("port = 'x'")
    refused({}, tmp_path / "bad.toml")
    assert load().port == 8787


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prot = 1", "prot"),
        ("[server]\nport = 1", "server"),
        ("port = 'x'", "port"),
        ("port = 70000", "port"),
        ("engine = 'gpt'", "engine"),
        ("probe_tokens = 1", "probe_tokens"),
        ("bet_limit_s = 0", "bet_limit_s"),
        ("upstream = 'example.com/v1'", "upstream"),
        ("port = ", "not valid TOML"),
        ("port = 1\nport = 2", "not valid TOML"),
    ],
)
def test_what_is_wrong_in_the_file_is_named_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "agentspec.toml").write_text(text)
    assert told in refused()


def test_a_file_that_is_no_text_or_no_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe\0")
    for path in (tmp_path / "x.toml", tmp_path, tmp_path / "missing.toml"):
        assert str(path) in refused({}, path)


def test_what_is_wrong_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTSPEC_PORT", "many")
    assert "port" in refused()
    monkeypatch.delenv("AGENTSPEC_PORT")
    monkeypatch.setenv("AGENTSPEC_CONFIG", "nowhere.toml")
    assert "nowhere.toml" in refused()


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000/v1",
        "ftp://x/v1",
        "http://",
        "http:///v1",
        "http://:8000/v1",
        "http://host:port/v1",
        "http://host:99999/v1",
        "http://[::1/v1",
        "http://a b/v1",
        "http://a..b/v1",
        "v1",
    ],
)
def test_an_upstream_that_is_no_url_is_refused_at_start(url: str) -> None:
    assert "setting upstream" in refused({"upstream": url})


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000/v1", "https://api.openai.com/v1/", "http://[::1]:8/v1//", "http://h/v1\n"]
)
def test_an_upstream_keeps_no_slash_and_no_white_space_at_its_end(url: str) -> None:
    assert load({"upstream": url}).upstream == url.strip().rstrip("/")


def test_a_money_cap_needs_prices_where_probes_are_billed() -> None:
    told = refused({"probe_money_cap_usd": 1.0, "price_input_usd_per_mtok": 1.0})
    assert "price_output_usd_per_mtok" in told
    load({"probe_money_cap_usd": 1.0, "engine": "vllm"})


@pytest.mark.parametrize(
    ("flags", "allowed"),
    [
        ({}, False),
        ({"engine": "vllm"}, True),
        ({"engine": "vllm", "probe": False}, False),
        ({"engine": "vllm", "speculation": False}, False),
        ({"probe_money_cap_usd": 1, "price_input_usd_per_mtok": 1, "price_output_usd_per_mtok": 1}, True),
    ],
)
def test_hosted_endpoints_are_probed_only_for_money_that_was_granted(flags: dict[str, Any], allowed: bool) -> None:
    settings = load(flags)
    assert settings.probes_allowed(settings.engine) is allowed


def test_keys_are_not_shown() -> None:
    settings = load({"upstream_key": "sk-hush"})
    assert "hush" not in repr(settings) + str(settings.upstream_key) + settings.model_dump_json()


@pytest.mark.parametrize("key", ["sk-hush\n", " sk-hush", "sk-hush\r\n"])
def test_white_space_around_a_key_is_not_part_of_it(key: str) -> None:
    loaded = load({"upstream_key": key}).upstream_key
    assert loaded is not None
    assert loaded.get_secret_value() == "sk-hush"


def test_which_engines_send_bills() -> None:
    assert [engine.hosted for engine in Engine] == [engine in (Engine.OPENAI, Engine.ANTHROPIC) for engine in Engine]


@pytest.mark.parametrize("flags", [{"probe_money_cap_usd": -1}, {"bet_limit_s": "soon"}, {"nonsense": 1}])
def test_a_flag_that_does_not_fit_is_named(flags: dict[str, Any]) -> None:
    assert next(iter(flags)) in refused(flags)


def test_an_empty_key_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose files and CI set variables that they have no value for."""
    monkeypatch.setenv("AGENTSPEC_UPSTREAM_KEY", "")
    assert load().upstream_key is None


def test_harmless_tools_come_as_json_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTSPEC_HARMLESS_TOOLS", '["final_answer", "transfer"]')
    assert load().harmless_tools == ("final_answer", "transfer")


def test_a_list_that_is_no_json_is_told_how_to_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTSPEC_HARMLESS_TOOLS", "final_answer")
    assert "harmless_tools" in refused() and "JSON" in refused()


def test_memory_lies_beside_the_ledger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = load()
    assert found.memory_database == f"sqlite:///{tmp_path}/agentspec/memory.sqlite3"
    assert found.database == f"sqlite:///{tmp_path}/agentspec/ledger.sqlite3"
    assert load({"memory_database": ""}).memory_database == ""
