"""What the demo's tools look into: a shop's stock and orders in SQLite, a carrier's HTTP service, a handbook.

All three are real and local. What is simulated is distance: in production they would be a remote database, somebody
else's slow API and a search service, so each answer waits `Latency` seconds first. The wait is the same for both arms.
"""

from __future__ import annotations

import asyncio
import re
import socket
import sqlite3
import tempfile
import threading
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from math import log
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

HANDBOOK = Path(__file__).with_name("handbook")

_STOCK = [
    ("tent", 7, "A1"),
    ("stove", 23, "A4"),
    ("rope", 41, "B2"),
    ("lamp", 12, "B3"),
    ("backpack", 18, "C1"),
    ("compass", 64, "C2"),
    ("boots", 30, "C5"),
    ("kettle", 9, "A5"),
]
_ORDERS = [
    ("4402", "boots", "sent", "PX12"),
    ("4417", "sleeping bag", "packed", "PX31"),
    ("4420", "rope", "sent", "PX58"),
    ("4433", "stove", "sent", "PX83"),
    ("4458", "kettle", "sent", "PX64"),
]
_PARCELS = {
    "PX12": ("Turin", "Tuesday"),
    "PX20": ("Berlin", "Sunday"),
    "PX58": ("Geneva", "Monday"),
    "PX64": ("Porto", "Thursday"),
    "PX83": ("Lyon", "Friday"),
}


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds that the simulated distance adds to each answer."""

    database: float = 4.5
    carrier: float = 5.0
    handbook: float = 10.0


class Catalogue:
    """Stock and orders. One connection per query: tools are called from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(self._open()) as database, database:
            database.execute("CREATE TABLE stock (item TEXT PRIMARY KEY, pieces INTEGER NOT NULL, shelf TEXT NOT NULL)")
            database.execute(
                "CREATE TABLE orders (number TEXT PRIMARY KEY, item TEXT NOT NULL, status TEXT NOT NULL, parcel TEXT)"
            )
            database.executemany("INSERT INTO stock VALUES (?, ?, ?)", _STOCK)
            database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", _ORDERS)

    def stock(self, item: str) -> dict[str, Any] | None:
        """An item by its name, singular or plural."""
        found = self._one("SELECT item, pieces FROM stock WHERE ? IN (item, item || 's')", item.lower())
        return dict(found) if found else None

    def order(self, number: str) -> dict[str, Any] | None:
        found = self._one("SELECT number, item, status, parcel FROM orders WHERE number = ?", number)
        return dict(found) if found else None

    def _one(self, query: str, value: str) -> sqlite3.Row | None:
        with closing(self._open()) as database:
            row: sqlite3.Row | None = database.execute(query, (value,)).fetchone()
            return row

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path)
        database.row_factory = sqlite3.Row
        return database


class Handbook:
    """Full-text search over the pages of a folder, by rare words first; a word in a page's title counts three times."""

    def __init__(self, folder: Path = HANDBOOK) -> None:
        self._paragraphs: list[tuple[str, str, Counter[str]]] = []
        for page in sorted(folder.glob("*.md")):
            title, *paragraphs = page.read_text(encoding="utf-8").strip().split("\n\n")
            heading = title.removeprefix("#").strip()
            for text in paragraphs:
                words = Counter(_words(text)) + Counter(_words(heading) * 3)
                self._paragraphs.append((heading.lower(), " ".join(text.split()), words))

    def search(self, topic: str) -> dict[str, Any] | None:
        """The paragraph that fits best, or None when no word of the topic occurs."""
        wanted = {word: self._rarity(word) for word in _words(topic)}
        scored = [(sum(words[w] * r for w, r in wanted.items()), page, text) for page, text, words in self._paragraphs]
        score, page, text = max(scored, key=lambda entry: entry[0])  # the first of equals: pages begin with the rule
        return {"page": page, "text": text} if score else None

    def _rarity(self, word: str) -> float:
        holding = sum(word in words for _, _, words in self._paragraphs)
        return log(1 + len(self._paragraphs) / holding) if holding else 0.0


def _words(text: str) -> list[str]:
    """Lower-case words without a plural's end."""
    return [word.removesuffix("s") for word in re.findall(r"[a-z]+", text.lower())]


@dataclass
class Carrier:
    """Somebody else's parcel service: HTTP on a free loopback port, in a thread of its own."""

    latency: float
    _server: uvicorn.Server | None = field(default=None, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    url: str = field(default="", init=False)

    def start(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        app = Starlette(routes=[Route("/parcels/{number}", self._parcel)])
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listener]}, name="demo-carrier", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(timeout=10.0)

    async def _parcel(self, request: Request) -> Response:
        await asyncio.sleep(self.latency)
        number = request.path_params["number"].upper()
        if number not in _PARCELS:
            return JSONResponse({"error": "unknown parcel"}, status_code=404)
        place, due = _PARCELS[number]
        return JSONResponse({"parcel": number, "place": place, "due": due})


class Shop:
    """Everything the tools need, from `with` to the end of its block."""

    def __init__(self, latency: Latency | None = None) -> None:
        self.latency = latency or Latency()
        self._folder = tempfile.TemporaryDirectory(prefix="agentspec-demo-")
        self.catalogue = Catalogue(Path(self._folder.name) / "shop.sqlite3")
        self.handbook = Handbook()
        self.carrier = Carrier(self.latency.carrier)
        self._http = httpx.Client(timeout=60.0, trust_env=False)

    def __enter__(self) -> Self:
        self.carrier.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.close()
        self.carrier.stop()
        self._folder.cleanup()

    def parcel(self, number: str) -> dict[str, Any]:
        """What the carrier says about a parcel."""
        found: dict[str, Any] = self._http.get(f"{self.carrier.url}/parcels/{number}").json()
        return found
