"""One memory per tenant: kept over restarts, shared between processes, and made to forget.

Callers only touch what is in memory already. One thread does the rest: it loads a tenant's memory when it is first
asked for, learns, writes to the store, and looks now and then whether another process learnt or forgot something.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

from agentspec.memory.migrations.opening import Patience
from agentspec.memory.store import Limits, MemoryStore, Shelf, Storable
from agentspec.memory.unhurried import unhurried
from agentspec.recollection import Past, Recollection

log = logging.getLogger("agentspec.memory")

_GATHER_S, _MAX_BATCH = 0.1, 200
_Task = tuple[str, Past] | Callable[[], None] | None
"""A trajectory to learn, something else to do, or the end."""


class Keeper:
    """Hands out memories and keeps them in `store`. Without one they last as long as the process.

    Attributes:
        dropped: trajectories that were not learnt: the queue was full, or something was forgotten meanwhile.
        unkept: trajectories that were learnt and are not in the store.
        failed: trajectories that a memory could not learn.
    """

    def __init__(self, store: MemoryStore | None, build: Callable[[], Storable], limits: Limits | None = None) -> None:
        self.store, self._build, self._limits = store, build, limits or Limits()
        self._shelves: OrderedDict[str, Shelf] = OrderedDict()
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._patience = Patience(self._limits.pause_s)
        self.dropped = self.unkept = self.failed = 0
        self._thread = threading.Thread(target=self._work, name="agentspec-memory", daemon=True)
        self._thread.start()

    # For callers: nothing here waits

    def of(self, tenant: str) -> Recollection:
        """The tenant's memory as it is now. Ask each time: after something was forgotten it is another one."""
        with self._lock:
            return self._shelf(tenant).memory

    def learnt(self, tenant: str, past: Past) -> None:
        """Have a trajectory learnt and kept, soon."""
        with self._lock:
            if self._closing.is_set() or self._queue.qsize() >= self._limits.max_queued:
                self.dropped += 1
                return
            self._shelf(tenant)
            self._queue.put((tenant, past))

    def forget_trajectory(self, tenant: str, trajectory: str) -> Future[int]:
        """Forget a trajectory: at once in forecasts, then in the store; how many it held, or why it did not."""
        return self._forget(tenant, lambda store: store.forget_trajectory(tenant, trajectory))

    def forget_scope(self, tenant: str, scope: str) -> Future[int]:
        """Forget an end user, likewise."""
        return self._forget(tenant, lambda store: store.forget_scope(tenant, scope))

    def forget_tenant(self, tenant: str) -> Future[int]:
        """Forget everything of a tenant, likewise."""
        return self._forget(tenant, lambda store: store.forget_tenant(tenant))

    def close(self) -> None:
        """Learn what is queued and save what was learnt; waits `close_s` at most. The store stays open."""
        with self._lock:
            self._closing.set()
            self._queue.put(None)
        self._thread.join(self._limits.close_s)

    def _shelf(self, tenant: str) -> Shelf:
        shelf = self._shelves.get(tenant)
        if shelf is None:
            shelf = self._shelves[tenant] = Shelf(tenant, self._build(), loaded=self.store is None)
            if self._queue.qsize() < 2 * self._limits.max_queued:  # else it is loaded at the next look
                self._queue.put(partial(self._load, shelf))
            if len(self._shelves) > self._limits.max_tenants:
                self._shelves.popitem(last=False)
        self._shelves.move_to_end(tenant)
        return shelf

    def _forget(self, tenant: str, delete: Callable[[MemoryStore], int]) -> Future[int]:
        done: Future[int] = Future()
        done.set_running_or_notify_cancel()  # what is asked for is done, whoever still waits for it
        with self._lock:
            if self._closing.is_set():
                done.set_exception(RuntimeError("memory is closed; nothing was forgotten"))
                return done
            shelf = self._shelves.get(tenant)
            if shelf is not None:
                shelf.stale += 1
                self._empty(shelf)
            self._queue.put(partial(self._forget_now, shelf, delete, done))
        return done

    def _empty(self, shelf: Shelf) -> None:
        shelf.memory, shelf.loaded = self._build(), self.store is None
        shelf.early.clear()

    # The thread

    def _work(self) -> None:
        look_at = time.monotonic() + self._limits.look_every_s
        while True:
            batch = self._next_batch(max(0.0, look_at - time.monotonic()))
            self._do(batch)
            if None in batch:
                break
            if time.monotonic() >= look_at:
                self._each(self._look)
                self._each(self._catch_up)
                look_at = time.monotonic() + self._limits.look_every_s
        self._each(self._save)

    def _next_batch(self, timeout_s: float) -> list[_Task]:
        try:
            batch = [self._queue.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        if isinstance(batch[0], tuple):
            self._closing.wait(_GATHER_S)  # one look at the database for what comes in a row
        while len(batch) < _MAX_BATCH and batch[-1] is not None and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        return batch

    def _do(self, batch: Iterable[_Task]) -> None:
        """In the order in which it came, as far as anybody could tell."""
        learnt: dict[str, list[Past]] = {}
        for task in [*batch, None]:
            if isinstance(task, tuple):
                learnt.setdefault(task[0], []).append(task[1])
                continue
            for tenant, pasts in learnt.items():
                self._safely(self._learn, tenant, pasts)
            learnt.clear()
            if task is not None:
                self._safely(task)

    def _each(self, what: Callable[[Shelf], object]) -> None:
        with self._lock:
            shelves = list(self._shelves.values())
        for shelf in shelves:
            self._safely(what, shelf)

    def _safely(self, what: Callable[..., object], *arguments: object) -> None:
        try:
            what(*arguments)
        except Exception as error:
            log.warning("memory: %s", f"{type(error).__name__}: {error}".splitlines()[0])

    def _learn(self, tenant: str, pasts: list[Past]) -> None:
        with self._lock:
            shelf = self._shelves.get(tenant)
        if shelf is not None and not self._look(shelf):
            self.dropped += len(pasts)  # they may tell what another process was just made to forget
            return
        if shelf is not None and (memory := self._current(shelf)) is not None:
            for past in unhurried(pasts, self._closing.wait):
                self._teach(memory, past)
            with self._lock:
                if not shelf.loaded and not shelf.stale:
                    shelf.early.extend(pasts)
        if self.store is not None:
            self._keep(self.store, tenant, shelf, pasts)
        if shelf is not None and shelf.unsaved >= self._limits.save_every:
            self._save(shelf)

    def _current(self, shelf: Shelf) -> Storable | None:
        """Its memory, None while something is to be forgotten."""
        with self._lock:
            return None if shelf.stale else shelf.memory

    def _teach(self, memory: Storable, past: Past) -> None:
        try:
            memory.learn(past)
        except Exception as error:
            self.failed += 1
            if self.failed == 1:
                log.warning("memory: could not learn a trajectory: %s: %s", type(error).__name__, error)

    def _keep(self, store: MemoryStore, tenant: str, shelf: Shelf | None, pasts: Iterable[Past]) -> None:
        longest = {past.trajectory: past for past in sorted(pasts, key=lambda past: len(past.history))}
        generation = shelf.generation if shelf is not None and shelf.loaded else None
        for past in longest.values():
            self.unkept += 1
            with self._patience.asking() as may, suppress(ValueError):
                if may:
                    identity = store.remember(tenant, past, generation)
                    self.unkept -= 1
                    if shelf is not None and identity is not None:
                        shelf.own.add(identity)
            if shelf is not None:
                shelf.unsaved += 1

    # What is stored, and what of it this process knows

    def _look(self, shelf: Shelf) -> bool:
        """Load what is not loaded; False where another process has forgotten something, which is then done here."""
        if self.store is None or self._current(shelf) is None:
            return True
        if not shelf.loaded:
            self._load(shelf)
            return True
        changed = False
        with self._patience.asking() as may:
            changed = may and self.store.generation(shelf.tenant) != shelf.generation
        if changed:
            with self._lock:
                self._empty(shelf)
            self._load(shelf)
        return not changed

    def _load(self, shelf: Shelf) -> None:
        """Make its memory from the snapshot and the trajectories after it; the one there serves until that is done."""
        store = self.store
        with self._lock:
            wanted = self._shelves.get(shelf.tenant) is shelf and not shelf.stale
            early = list(shelf.early)
        if store is None or not wanted:
            return
        with self._patience.asking() as may:
            if not may:
                return
            generation = store.generation(shelf.tenant)
            fresh, upto = self._restored(store.snapshot(shelf.tenant))
            newest, unsaved = store.newest(shelf.tenant), len(early)
            after = store.before_newest(shelf.tenant, self._limits.replayed) if upto is None else upto
            for _, past in store.pasts(shelf.tenant, after):
                self._teach(fresh, past)
                unsaved += 1
            for past in early:
                self._teach(fresh, past)
            shelf.generation, shelf.upto, shelf.unsaved = generation, max(newest, after), unsaved
            shelf.own.clear()
            with self._lock:
                if not shelf.stale:
                    shelf.memory, shelf.loaded = fresh, True
                    shelf.early.clear()
        if shelf.unsaved >= self._limits.save_every:
            self._save(shelf)

    def _restored(self, snapshot: tuple[int, bytes] | None) -> tuple[Storable, int | None]:
        fresh = self._build()
        if snapshot is None:
            return fresh, None
        try:
            fresh.restore(snapshot[1])
        except Exception as error:
            log.info("memory: a snapshot is left aside, its trajectories are learnt again: %s", error)
            return self._build(), None
        return fresh, snapshot[0]

    def _catch_up(self, shelf: Shelf) -> None:
        """Learn what other processes have stored."""
        store, memory = self.store, self._current(shelf)
        if store is None or memory is None or not shelf.loaded:
            return
        with self._patience.asking() as may:
            newest = store.newest(shelf.tenant) if may else 0
            if newest > shelf.upto:
                for _, past in store.pasts(shelf.tenant, shelf.upto, skip=shelf.own):
                    self._teach(memory, past)
                    shelf.unsaved += 1
                shelf.upto = newest
                shelf.own = {identity for identity in shelf.own if identity > newest}

    def _save(self, shelf: Shelf) -> None:
        self._catch_up(shelf)
        store, memory, limits = self.store, self._current(shelf), self._limits
        if store is None or memory is None or not shelf.loaded or not shelf.unsaved:
            return
        with self._patience.asking() as may:
            if may and store.save_snapshot(shelf.tenant, shelf.upto, memory.dump(), shelf.generation):
                shelf.unsaved = 0
                store.trim(shelf.tenant, limits.max_trajectories, limits.max_age_s, limits.max_bytes)

    def _forget_now(self, shelf: Shelf | None, delete: Callable[[MemoryStore], int], done: Future[int]) -> None:
        try:
            done.set_result(0 if self.store is None else delete(self.store))
        except Exception as error:
            done.set_exception(error)
        if shelf is not None:
            with self._lock:
                shelf.stale -= 1
            self._load(shelf)
