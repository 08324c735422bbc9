"""A shop's agent before a real proxy: a recorded model that can be probed, declared tools, guesses right and wrong."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import openai

import agentspec
from agentspec import speculate
from agentspec.config import Settings
from agentspec.memory.ledger_reader import LedgerReader
from agentspec.protocols import LiveTurn, Offer, Prediction
from agentspec.proxy.replay.agent import play
from agentspec.proxy.replay.endpoint import Pace, RecordedEndpoint
from agentspec.proxy.replay.matching import Index
from agentspec.proxy.replay.recordings import Library, Recording, load
from agentspec.proxy.replay.serve import serving
from agentspec.proxy.wiring import build
from agentspec.tools_sandbox.connect import Connection
from agentspec.tools_sandbox.declare import declared
from agentspec.trajectory import ASSISTANT
from tests.contract.scripted import DONE, Serving, event, eventually
from tests.dashboard.talks import TALKS, Talk, write

PACE = Pace(tokens_per_s=110.0, ttft_ms=120.0)


class Shop:
    """The tools, with the times that a database, a carrier and a search would take."""

    def __init__(self, slow: float = 1.0) -> None:
        @speculate(effect="read", reads={"orders"}, stable_for=30.0)
        def get_order(order_id: str) -> str:
            time.sleep(0.25 * slow)
            return json.dumps({"order": order_id, "status": "sent", "parcel": _PARCELS.get(order_id)})

        @speculate(effect="read", reads={"parcels"}, stable_for=60.0)
        def track_parcel(parcel: str) -> str:
            time.sleep(0.9 * slow)
            if parcel == "PX00":
                raise LookupError("no parcel PX00")
            return json.dumps({"parcel": parcel, "place": "Turin"})

        @speculate(effect="read", reads={"web"}, stable_for=60.0, egress=True)
        def search_web(words: str) -> str:
            time.sleep(0.4 * slow)
            return json.dumps({"found": words})

        @speculate(effect="pure")
        def quote(parcel: str, country: str) -> str:
            time.sleep(0.3 * slow)
            return json.dumps({"price": 12})

        @speculate(effect="write", writes={"orders"})
        def cancel_order(order_id: str) -> str:
            return json.dumps({"order": order_id, "status": "cancelled"})

        @speculate(effect="irreversible")
        def send_mail(order_id: str) -> str:
            return json.dumps({"sent": order_id})

        self.tools = [get_order, track_parcel, search_web, quote, cancel_order, send_mail]

    @property
    def by_name(self) -> dict[str, Any]:
        return {tool.__name__: tool for tool in self.tools}


_PARCELS = {"4417": "PX31", "4420": "PX58", "4402": "PX12"}


class Seer:
    """Guesses what the talks say is guessed. Not calibrated: the gate finds out what it is worth."""

    name = "seer"

    def __init__(self, talks: Iterable[Talk]) -> None:
        self._talks = {talk.session: talk for talk in talks}

    async def speculate(self, turn: LiveTurn, offer: Offer) -> None:
        talk = self._talks.get(turn.request.model)
        answered = sum(said.role == ASSISTANT for said in turn.history)
        for call, confidence in talk.of(answered) if talk else []:
            offer(Prediction(call, self.name, confidence, confidence**0.5))


class Probed:
    """The recorded endpoint, for which a probe finds what the recording says next."""

    def __init__(self, recordings: Sequence[Recording], pace: Pace) -> None:
        self._recorded, self._index = RecordedEndpoint(recordings, pace), Index(recordings)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._recorded(scope, receive, send)
            return
        raw, more = b"", True
        while more:
            message = await receive()
            raw, more = raw + message.get("body", b""), message.get("more_body", False)
        body = json.loads(raw)
        if body.get("continue_final_message"):
            await self._probe(body, send)
            return
        given = [{"type": "http.request", "body": raw, "more_body": False}]

        async def again() -> Any:
            return given.pop() if given else await receive()

        await self._recorded(scope, again, send)

    async def _probe(self, body: dict[str, Any], send: Any) -> None:
        calls = self._index.find(body["model"], body["messages"][:-1]).answer.calls
        rest = "none of them, the answer is ready"
        if calls:
            rest = json.dumps({"name": calls[0].name, "arguments": calls[0].arguments}).removeprefix('{"name": "')
        choice = {
            "index": 0,
            "delta": {"content": rest},
            "logprobs": {"content": [{"token": rest, "logprob": -0.05}]},
            "finish_reason": None,
        }
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        usage = {"prompt_tokens": 180, "completion_tokens": 12, "total_tokens": 192}
        chunks = event({}, choices=[choice]) + event({}, choices=[], usage=usage) + DONE
        await send({"type": "http.response.body", "body": chunks})


class Scene:
    """A proxy with its endpoint and one runtime for each API key; `plays` lets agents work."""

    def __init__(self, folder: Path, talks: Sequence[Talk] = TALKS, pace: Pace = PACE, **settings: Any) -> None:
        self._stack = ExitStack()
        self.talks = list(talks)
        self._recordings = {one.model: one for one in load(write(folder, self.talks))}
        endpoint = self._stack.enter_context(serving(Probed(list(self._recordings.values()), pace)))
        values: dict[str, Any] = {
            "database": f"sqlite:///{folder / 'ledger.sqlite3'}",
            "memory_database": f"sqlite:///{folder / 'memory.sqlite3'}",
            "memory_idle_s": 0.5,
            "engine": "agentspec",
            "keep_arguments": True,
        }
        self.settings = Settings(upstream=endpoint, **{**values, **settings})
        self.app = build(self.settings, extra_speculators=[Seer(self.talks)])
        self._serving = Serving(self.app)
        self.stop = self._serving.stop
        self._stack.callback(self.stop)
        self.url = f"http://127.0.0.1:{self._serving.port}"
        self.reader = LedgerReader(self.settings.database)
        self._runtimes: dict[str, tuple[Connection, Shop]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Scene:
        return self

    def __exit__(self, *_: object) -> None:
        for runtime, _ in self._runtimes.values():
            runtime.close()
        self.reader.close()
        self._stack.close()

    def runtime(self, key: str = "k") -> tuple[Connection, Shop]:
        """The agent's process of this key, connected."""
        with self._lock:
            if key not in self._runtimes:
                shop = Shop()
                connection = agentspec.connect(self.url, tools=shop.tools, api_key=key, wait_s=5.0)
                assert connection.connected
                self._runtimes[key] = connection, shop
            return self._runtimes[key]

    def plays(self, *sessions: str, key: str = "k", scope: str = "anna", at_once: int = 3) -> None:
        """Have agents hold these talks (all of them where none is named), and wait until the books have them."""
        wanted = sessions or tuple(talk.session for talk in self.talks)
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda session: self._play(session, key, scope), wanted))
        turns = {s: sum(step["role"] == "assistant" for step in self._talk(s).steps) for s in wanted}
        eventually(lambda: all(self._turns(s) >= turns[s] for s in wanted), "the books have every turn")

    def _turns(self, session: str) -> int:
        return max((run["turns"] for run in self.reader.runs(limit=500) if run["session"] == session), default=0)

    def _talk(self, session: str) -> Talk:
        return next(talk for talk in self.talks if talk.session == session)

    def _play(self, session: str, key: str, scope: str) -> None:
        connection, shop = self.runtime(key)
        headers = {"x-agentspec-session": session, "x-agentspec-scope": scope}
        with self._client(connection, key, headers) as client:
            done = play(self._recordings[session], self._library(shop), client, shop.by_name)
        assert done.finished, done.mismatches

    def _library(self, shop: Shop) -> Library:
        schemas = [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "parameters": declared(tool).spec.parameters,
                },
            }
            for name, tool in shop.by_name.items()
        ]
        return Library(tools={"": schemas})

    @contextmanager
    def _client(self, connection: Connection, key: str, headers: dict[str, str]) -> Iterator[openai.OpenAI]:
        with openai.OpenAI(
            base_url=connection.base_url,
            api_key=key,
            max_retries=0,
            timeout=30,
            http_client=connection.http_client(),
            default_headers=headers,
        ) as client:
            yield client
