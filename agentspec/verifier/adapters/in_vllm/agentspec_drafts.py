"""Drafts from outside for vLLM. Runs in vLLM's own processes: nothing but the standard library is imported here.

Two halves, one in each process of the server:

- `DraftsDoor`, a middleware of the API server, takes `POST /v1/drafts {"request_id", "drafts": [text]}` for a chat
  completion that is running under that id (its header `X-Request-Id`), from whoever shows the same `Authorization`. It
  has vLLM tokenize the texts and the request's prompt, and sends ids and the prompt's digest over a local socket.
- `PostedDrafts`, a proposer (`custom_class`), is told by vLLM only the tokens of each row of its batch. A draft is used
  for a row that begins with the very prompt it was posted for, where the row's last tokens are found in it.

Whatever arrives here is a draft: the engine verifies each token, and the output is the same without.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import socket
import threading
import time
from array import array
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

SOCKET = "AGENTSPEC_DRAFTS_SOCKET"
MOST_TOKENS = 4096
MOST_REQUESTS = 4096
KEPT_S = 600.0
CHAT_PATH, DRAFTS_PATH = "/v1/chat/completions", "/v1/drafts"
_PROMPT_FIELDS = (
    "model",
    "messages",
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "chat_template",
    "chat_template_kwargs",
)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def digest(ids: bytes) -> str:
    """Of token ids as 32-bit integers."""
    return hashlib.blake2b(ids, digest_size=16).hexdigest()


def continuation(written: Sequence[int], draft: Sequence[int], most: int) -> tuple[int, list[int]]:
    """What a draft says comes next: behind the longest run of tokens that ends `written` and stands in the draft.

    One token is enough at the draft's beginning, elsewhere it takes two: punctuation stands everywhere.

    Returns:
        the length of that run, and at most `most` tokens; (0, []) where nothing fits.
    """
    best, end = 0, 0
    for stop in range(1, len(draft)):
        run = 0
        while run < min(stop, len(written)) and draft[stop - 1 - run] == written[-1 - run]:
            run += 1
        if run > best and (run >= 2 or stop == 1):
            best, end = run, stop
    return best, list(draft[end : end + most]) if best else []


@dataclass(slots=True)
class Posted:
    """The drafts for one running request, known by its prompt."""

    prompt_tokens: int
    prompt_digest: str
    drafts: list[list[int]]
    at_s: float

    def next(self, row: Any, count: int, most: int) -> list[int]:
        """The tokens that may follow the first `count` of a row (an integer array); none where the row is another's."""
        prompt = row[: self.prompt_tokens].astype("int32").tobytes()
        if count <= self.prompt_tokens or digest(prompt) != self.prompt_digest:
            return []
        written = [int(token) for token in row[max(self.prompt_tokens, count - 64) : count]]
        found = [continuation(written, draft, most) for draft in self.drafts]
        return max(found, key=lambda one: one[0], default=(0, []))[1]


class PostedDrafts:
    """vLLM's interface for proposers (0.32: experimental). Rows without a posted draft get none."""

    def __init__(self, vllm_config: Any) -> None:
        if vllm_config.parallel_config.world_size > 1:
            raise ValueError("posted drafts need one worker: others would draft something else (tensor parallel size)")
        self._most: int = vllm_config.speculative_config.num_speculative_tokens
        self._longest: int = vllm_config.model_config.max_model_len
        self._posted: dict[str, Posted] = {}
        self._inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = os.environ[SOCKET]
        if os.path.exists(path):
            os.unlink(path)
        self._inbox.bind(path)
        threading.Thread(target=self._listen, name="agentspec-drafts", daemon=True).start()

    def load_model(self, *_: Any, **__: Any) -> None:
        """There is none."""

    def _listen(self) -> None:
        while True:
            try:
                self.take(json.loads(self._inbox.recv(1 << 20)))
            except (ValueError, KeyError, TypeError, AttributeError):  # no letter of the door's
                continue
            except OSError:
                return

    def take(self, told: dict[str, Any]) -> None:
        """Drafts for a request, or word that it is over."""
        posted, now_s = dict(self._posted), time.monotonic()
        if told.get("over"):
            posted.pop(told["id"], None)
        else:
            before = posted.get(told["id"])
            drafts = [*(before.drafts if before else []), *told["drafts"]]
            posted[told["id"]] = Posted(told["prompt_tokens"], told["prompt_digest"], drafts, now_s)
        self._posted = {
            name: one for name, one in posted.items() if now_s - one.at_s < KEPT_S
        }  # swapped, never changed

    def propose(
        self, sampled_token_ids: list[list[int]], num_tokens_no_spec: Any, token_ids_cpu: Any, slot_mappings: Any = None
    ) -> list[list[int]]:
        """Drafts for each row of the batch: `token_ids_cpu` is [rows, tokens], of which `num_tokens_no_spec` count."""
        posted = self._posted
        return [
            self._next(posted, token_ids_cpu[row], int(num_tokens_no_spec[row])) if posted and sampled else []
            for row, sampled in enumerate(sampled_token_ids)
        ]

    def _next(self, posted: dict[str, Posted], row: Any, count: int) -> list[int]:
        most = min(self._most, self._longest - count - 1)
        if most <= 0:
            return []
        return next((found for one in posted.values() if (found := one.next(row, count, most))), [])


@dataclass(slots=True)
class _Running:
    """A chat completion that is being answered."""

    key: bytes
    body: bytes
    prompt: list[int] | None = None


class DraftsDoor:
    """ASGI middleware of the API server."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._running: dict[str, _Running] = {}
        self._out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._out.setblocking(False)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        path = scope.get("path") if scope["type"] == "http" else None
        if path == DRAFTS_PATH:
            await self._drafts(scope, receive, send)
            return
        identity = _header(scope, b"x-request-id") if path == CHAT_PATH else b""
        name = identity.decode("latin-1")
        if not name or name in self._running or len(self._running) >= MOST_REQUESTS:
            await self._app(scope, receive, send)
            return
        body = await _read(receive)
        self._running[name] = _Running(_header(scope, b"authorization"), body)
        try:
            await self._app(scope, _again(body, receive), send)
        finally:
            had = self._running.pop(name).prompt is not None
            if had:
                self._tell({"id": name, "over": True})

    async def _drafts(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await _answer(send, 200, {"takes": "posted"})
            return
        try:
            asked = json.loads(await _read(receive))
            name, texts = asked["request_id"], [text for text in asked["drafts"] if isinstance(text, str)]
        except (ValueError, KeyError, TypeError):
            await _answer(send, 400, _error("the body must be {request_id, drafts: [text]}"))
            return
        running = self._running.get(name) if isinstance(name, str) else None
        if running is None or not hmac.compare_digest(running.key, _header(scope, b"authorization")):
            await _answer(send, 404, _error("no request of yours is running under that id"))
            return
        tokens = await self._offer(scope, name, running, texts)
        if tokens is None:
            await _answer(send, 409, _error("this request's prompt cannot be tokenized, or it is over"))
        else:
            await _answer(send, 200, {"request_id": name, "tokens": tokens})

    async def _offer(self, scope: Any, name: str, running: _Running, texts: list[str]) -> int | None:
        """Send drafts on; how many tokens they have, None where they could not be sent."""
        if running.prompt is None:
            body = json.loads(running.body)
            if body.get("cache_salt"):  # it asks not to share anything with equal prompts
                return None
            running.prompt = await self._tokens(scope, {k: body[k] for k in _PROMPT_FIELDS if k in body})
        if not running.prompt:
            return None
        drafts = [await self._tokens(scope, {"prompt": text, "add_special_tokens": False}) for text in texts]
        kept = [draft[:MOST_TOKENS] for draft in drafts if draft]
        ids = array("i", running.prompt).tobytes()
        told = {"id": name, "prompt_tokens": len(running.prompt), "prompt_digest": digest(ids), "drafts": kept}
        if name not in self._running or not self._tell(told):
            return None
        return sum(map(len, kept))

    async def _tokens(self, scope: Any, body: dict[str, Any]) -> list[int]:
        """What vLLM's own `/tokenize` says."""
        raw, sent = json.dumps(body).encode(), list[Message]()

        async def collect(message: Message) -> None:
            sent.append(message)

        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
        inner = {**scope, "path": "/tokenize", "raw_path": b"/tokenize", "query_string": b"", "headers": headers}
        await self._app(inner, _again(raw, _nothing_more), collect)
        if not sent or sent[0].get("status") != 200:
            return []
        found: list[int] = json.loads(b"".join(m.get("body", b"") for m in sent[1:]))["tokens"]
        return found

    def _tell(self, told: dict[str, Any]) -> bool:
        try:
            self._out.sendto(json.dumps(told).encode(), os.environ[SOCKET])
        except OSError:  # the inbox is full or gone: a draft is no loss
            return False
        return True


def _header(scope: Any, name: bytes) -> bytes:
    found: bytes = next((value for key, value in scope["headers"] if key == name), b"")
    return found


async def _read(receive: Receive) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = bool(message.get("more_body"))
    return b"".join(parts)


async def _nothing_more() -> Message:
    """A client that waits: one that left would have its answer cancelled."""
    await asyncio.Event().wait()
    raise AssertionError


def _again(body: bytes, rest: Receive) -> Receive:
    """Gives a body that has been read once more, and then what the connection says."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        return await rest()

    return receive


async def _answer(send: Send, status: int, body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": raw})


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": "drafts"}}
