"""What memory keeps: trajectories come back as they were, and what is forgotten is gone, whoever writes beside."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import subprocess
import sys
import threading
import time
import zlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentspec.calls import ToolCall
from agentspec.errors import ConfigError
from agentspec.memory.records import decode, encode, from_line, to_line
from agentspec.memory.store import MemoryStore
from agentspec.recollection import Past
from agentspec.trajectory import Said, meaning_digest

SOME = b'{"version": 1, "trajectory": "t", "scope": "", "history": [{"role": "user", "digest": "00"}]}'


def said(role: str, what: str, **more: Any) -> Said:
    return Said(role, meaning_digest([role, what]), **more)


def past(trajectory: str = "t", scope: str = "s", length: int = 2, **more: Any) -> Past:
    call = ToolCall("find", {"what": trajectory}, "c1")
    history = [said("user", f"{trajectory} {n}", text=f"{trajectory} {n}") for n in range(length - 1)]
    return Past(
        trajectory, scope, (*history, said("assistant", "", calls=(call,))), {"find": {"type": "object"}}, **more
    )


texts = st.text(st.characters(exclude_categories=()), max_size=20)
whole_texts = st.text(max_size=20)


def trajectories(text: st.SearchStrategy[str]) -> st.SearchStrategy[Past]:
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
        max_leaves=8,
    )
    objects = st.dictionaries(text, values, max_size=3)
    calls = st.builds(ToolCall, text, objects, st.none() | text)
    sets, rows = st.frozensets(text, max_size=3), st.lists(text, max_size=3).map(tuple)
    messages = st.builds(
        Said,
        role=text,
        digest=st.binary(min_size=16, max_size=16),
        calls=st.lists(calls, max_size=2).map(tuple),
        made=sets,
        refers=sets,
        answers=rows,
        text=text,
        results=rows,
        failed=sets,
    )
    outcomes = st.none() | st.floats(0.0, 1.0)
    tools = st.dictionaries(text, objects, max_size=2)
    return st.builds(Past, text, text, st.lists(messages, max_size=3).map(tuple), tools, outcomes)


# Records


@given(trajectories(texts))
@settings(max_examples=200, deadline=None)
def test_a_record_comes_back_as_it_was(given_past: Past) -> None:
    assert asdict(decode(encode(given_past))) == asdict(given_past)  # some fields do not count for equality
    assert encode(decode(encode(given_past))) == encode(given_past)


@given(trajectories(whole_texts), st.none() | st.floats(0, 1e12))
@settings(max_examples=200, deadline=None)
def test_a_line_comes_back_as_it_was(given_past: Past, learnt_at: float | None) -> None:
    line = to_line(given_past, learnt_at)
    assert b"\n" not in line
    read, at = from_line(line)
    assert (asdict(read), at) == (asdict(given_past), learnt_at)


def test_a_lone_surrogate_travels_in_a_line_as_its_escape() -> None:
    odd = past("\ud800", "\udfff")
    assert from_line(to_line(odd))[0] == odd


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_foreign_bytes_are_a_value_error(blob: bytes) -> None:
    head = encode(past())[:16]
    for foreign in (blob, head + blob, head + zlib.compress(blob)):
        with pytest.raises(ValueError, match=r"."):
            decode(foreign)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_record_is_a_value_error_or_some_past(data: st.DataObject) -> None:
    blob = bytearray(encode(past()))
    place = data.draw(st.integers(0, len(blob) - 1))
    blob[place] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(ValueError):
        decode(bytes(blob))


@pytest.mark.parametrize("cut", [0, 5, 15, 16, 20, -1])
def test_a_record_that_is_cut_off_is_a_value_error(cut: int) -> None:
    with pytest.raises(ValueError, match=r"record"):
        decode(encode(past())[:cut])


def test_a_few_bytes_do_not_fill_the_memory() -> None:
    bomb = encode(past())[:16] + zlib.compress(bytes(300 * 2**20), 9)
    with pytest.raises(ValueError, match="too long"):
        decode(bomb)


def test_what_cannot_be_kept_is_a_value_error() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    for odd in (deep, {"a": object()}):
        with pytest.raises(ValueError, match="cannot be kept"):
            encode(Past("t", "s", (said("assistant", "", calls=(ToolCall("f", odd),)),)))


# The store


@pytest.fixture
def store(database: str) -> MemoryStore:
    return MemoryStore(database)


@given(given_past=trajectories(texts))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_trajectory_is_kept_as_it_was(store: MemoryStore, given_past: Past) -> None:
    store.forget_tenant("hypothesis")
    identity = store.remember("hypothesis", given_past)
    assert [(n, asdict(one)) for n, one in store.pasts("hypothesis")] == [(identity, asdict(given_past))]
    assert store.stats("hypothesis").scopes == 1
    assert store.forget_scope("hypothesis", given_past.scope) == 1


def test_the_longer_version_replaces_the_shorter_and_gets_a_new_id(store: MemoryStore) -> None:
    first = store.remember("a", past(length=2))
    assert store.remember("a", past(length=2)) == first
    longer = store.remember("a", past(length=4))
    assert first is not None
    assert longer is not None
    assert longer > first
    assert store.remember("a", past(length=3)) is None
    assert store.remember("b", past(length=3)) is not None
    assert [len(one.history) for _, one in store.pasts("a", after=first)] == [4]
    told = store.remember("a", past(length=4, outcome=1.0))
    assert [(n, one.outcome) for n, one in store.pasts("a")] == [(told, 1.0)]
    assert store.newest("a") == told
    assert store.tenants() == ["a", "b"]


def test_pasts_come_oldest_first_a_few_or_all(store: MemoryStore) -> None:
    ids = [store.remember("a", past(f"t{n}", f"s{n % 3}")) for n in range(150)]
    found = list(store.pasts("a"))
    assert [n for n, _ in found] == ids
    assert [one.trajectory for _, one in found] == [f"t{n}" for n in range(150)]
    assert [n for n, _ in store.pasts("a", after=ids[99] or 0, limit=10)] == ids[100:110]
    assert [n for n, _ in store.pasts("a", skip=set(ids[:148]))] == ids[148:]
    assert [n for n, _ in store.pasts("a", store.before_newest("a", 7))] == ids[-7:]
    assert store.before_newest("a", 1000) == 0
    assert list(store.pasts("nobody")) == []
    stats = store.stats("a")
    assert (stats.trajectories, stats.scopes) == (150, 3)
    assert stats.size_bytes == sum(len(encode(one)) for _, one in found)
    assert stats.oldest_at is not None
    assert stats.newest_at is not None
    assert time.time() - 60 < stats.oldest_at <= stats.newest_at <= time.time()
    assert store.stats("nobody").oldest_at is None


def test_writing_while_reading_is_no_harm(store: MemoryStore) -> None:
    for n in range(100):
        store.remember("a", past(f"t{n}"))
    for n, _ in zip(range(100), store.pasts("a"), strict=False):
        store.remember("a", past(f"t{n}", length=3))
    assert store.stats("a").trajectories == 100


def test_broken_records_are_left_out_with_one_line(database: str, caplog: pytest.LogCaptureFixture) -> None:
    store, engine = MemoryStore(database), sa.create_engine(database)
    for n in range(5):
        store.remember("a", past(f"t{n}"))
    with engine.begin() as connection:
        table = sa.table("memory_trajectories", sa.column("trajectory"), sa.column("record", sa.LargeBinary))
        connection.execute(sa.update(table).where(table.c.trajectory.in_(["t1", "t3"])).values(record=b"nonsense"))
    engine.dispose()
    with caplog.at_level(logging.WARNING):
        assert [one.trajectory for _, one in store.pasts("a")] == ["t0", "t2", "t4"]
    assert [record.getMessage().startswith("memory: 2 broken records") for record in caplog.records] == [True]
    assert len(list(store.export("a"))) == 3


def test_forgetting_takes_what_is_named_and_the_snapshot(store: MemoryStore) -> None:
    for n, tenant in itertools.product(range(4), ("a", "b")):
        store.remember(tenant, past(f"t{n}", f"s{n % 2}"))
    for forget, count in (
        (lambda: store.forget_trajectory("a", "t0"), 1),
        (lambda: store.forget_trajectory("a", "t0"), 0),
        (lambda: store.forget_scope("a", "s1"), 2),
        (lambda: store.forget_tenant("a"), 1),
    ):
        generation = store.generation("a")
        assert store.save_snapshot("a", 1, b"blob", generation)
        assert store.snapshot("a") == (1, b"blob")
        assert forget() == count
        assert store.snapshot("a") is None
        assert store.generation("a") > generation
        assert not store.save_snapshot("a", 1, b"blob", generation)
        assert store.remember("a", past("late"), generation) is None
    assert store.tenants() == ["b"]
    assert store.stats("b").trajectories == 4
    assert store.generation("b") == 0


def test_a_snapshot_that_races_a_deletion_never_outlives_it(database: str) -> None:
    store, stop = MemoryStore(database), threading.Event()

    def save() -> None:
        mine = MemoryStore(database)
        while not stop.is_set():
            generation = mine.generation("a")
            known = [one.trajectory for _, one in mine.pasts("a")]
            mine.save_snapshot("a", mine.newest("a"), json.dumps(known).encode(), generation)
        mine.close()

    threads = [threading.Thread(target=save) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for n in range(15):
            store.remember("a", past(f"t{n}"))
            time.sleep(0.02)
            store.forget_trajectory("a", f"t{n}")
            for _ in range(5):
                found = store.snapshot("a")
                assert found is None or f"t{n}" not in json.loads(found[1])
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_what_is_forgotten_is_not_in_the_files_either(tmp_path: Path) -> None:
    store = MemoryStore(f"sqlite:///{tmp_path / 'm.sqlite3'}")
    store.remember("a", past("hush"))
    store.remember("a", past("other"))
    record = encode(past("hush"))
    assert any(record in file.read_bytes() for file in tmp_path.iterdir())
    store.forget_trajectory("a", "hush")
    assert not any(record in file.read_bytes() for file in tmp_path.iterdir())


def test_the_file_is_nobody_elses(tmp_path: Path) -> None:
    MemoryStore(f"sqlite:///{tmp_path / 'm.sqlite3'}").remember("a", past())
    assert {file.stat().st_mode & 0o077 for file in tmp_path.iterdir()} == {0}


def test_trimming_keeps_within_its_bounds(store: MemoryStore) -> None:
    for n in range(20):
        store.remember("a", past(f"t{n:02}"))
        store.remember("b", past(f"t{n:02}"))
    size = store.stats("a").size_bytes // 20
    assert store.trim("a") == 0
    assert store.trim("a", max_trajectories=20, max_age_s=3600, max_bytes=10**9) == 0
    assert store.trim("a", max_trajectories=15) == 5
    assert next(one.trajectory for _, one in store.pasts("a")) == "t05"
    assert store.trim("a", max_bytes=size * 10 + size // 2) == 5
    assert store.stats("a").size_bytes <= size * 10 + size // 2
    old = to_line(past("old"), time.time() - 5000)
    store.import_("a", [old])
    assert store.trim("a", max_age_s=4000) == 1
    assert store.trim("a", max_bytes=1) == 10
    assert store.stats("a").trajectories == 0
    assert store.stats("b").trajectories == 20
    assert store.generation("a") == 0


def test_names_of_any_length_and_kind_are_told_apart(store: MemoryStore) -> None:
    names = ["", "x", "x" * 200, "x" * 300, "x" * 301, "a\0", "a", "\ud800", "\ud801", "\U0001f600" * 200]
    for name in names:
        store.remember(name, past(name, name))
        store.remember("all", past(name, name))
    assert len(store.tenants()) == len(names) + 1
    assert store.stats("all").scopes == len(names)
    for name in names:
        assert [one.trajectory for _, one in store.pasts(name)] == [name]
        assert store.forget_scope("all", name) == 1
        assert store.forget_trajectory(name, name) == 1


# Exporting and importing


def test_what_is_exported_can_be_imported(store: MemoryStore) -> None:
    for n in range(70):
        store.remember("a", past(f"t{n}", "s \u00fc", outcome=0.5))
    lines = list(store.export("a"))
    assert len(lines) == 70
    assert all(line.endswith(b"\n") and json.loads(line)["version"] == 1 for line in lines)
    assert "s \u00fc".encode() in lines[0]
    assert store.import_("b", [*lines, b"\n"]) == 70
    assert [asdict(one) for _, one in store.pasts("b")] == [asdict(one) for _, one in store.pasts("a")]
    assert store.stats("b").oldest_at == store.stats("a").oldest_at
    assert store.import_("b", lines) == 70
    assert store.stats("b").trajectories == 70


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"nonsense", "line 2"),
        (b"\xff\xfe\x00", "line 2"),
        (b"[]", "line 2"),
        (b"[" * 200_000, "line 2"),
        (SOME.replace(b"1", b"2", 1), "version 2"),
        (SOME.replace(b'"scope": "", ', b""), "scope"),
        (SOME.replace(b'"00"', b'"zz"'), "line 2"),
        (SOME.replace(b'"00"', b"0"), "history"),
        (SOME.replace(b'"scope"', b'"x": 1, "scope"'), "unknown field"),
        (SOME.replace(b'"scope"', b'"learnt_at": NaN, "scope"'), "learnt_at"),
        (SOME.replace(b'"scope"', b'"outcome": "good", "scope"'), "outcome"),
        (SOME.replace(b'"scope"', b'"tools": {"f": 1}, "scope"'), "tools"),
    ],
)
def test_one_bad_line_and_nothing_is_imported(tmp_path: Path, line: bytes, told: str) -> None:
    store = MemoryStore(f"sqlite:///{tmp_path / 'm.sqlite3'}")
    with pytest.raises(ConfigError, match=told) as caught:
        store.import_("a", [SOME, line, SOME])
    assert str(caught.value).startswith("line 2 ")
    assert "\n" not in str(caught.value)
    assert store.tenants() == []
    assert store.import_("a", [SOME]) == 1


def test_nobody_learns_in_the_future(store: MemoryStore) -> None:
    store.import_("a", [to_line(past(), 1e12)])
    assert (store.stats("a").newest_at or 1e12) <= time.time()


# Several processes, and databases that are odd or away

_WRITER = """
import sys
from agentspec.memory.store import MemoryStore
from agentspec.recollection import Past
from agentspec.trajectory import Said
store = MemoryStore(sys.argv[1])
for length in range(1, 6):
    for n in range(20):
        history = tuple(Said("user", bytes([k]) * 16) for k in range(length))
        store.remember("a", Past(f"t{n}", sys.argv[2], history))
"""


def test_two_processes_write_the_same_trajectories_at_once(database: str) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, database, name], stderr=subprocess.PIPE, text=True)
        for name in ("one", "other")
    ]
    assert [writer.communicate(timeout=100)[1] for writer in writers] == ["", ""]
    found = [one for _, one in MemoryStore(database).pasts("a")]
    assert sorted(one.trajectory for one in found) == sorted(f"t{n}" for n in range(20))
    assert {len(one.history) for one in found} == {5}


def test_ids_of_a_tenant_appear_in_their_order(database: str) -> None:
    """Who has read up to an id has missed none below it, however many write."""

    def write(name: str) -> None:
        mine = MemoryStore(database)
        for n in range(25):
            mine.remember("a", past(f"{name}{n}"))
        mine.close()

    writers = [threading.Thread(target=write, args=(name,)) for name in ("x", "y", "z")]
    store, seen = MemoryStore(database), []
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        seen += [n for n, _ in store.pasts("a", after=seen[-1] if seen else 0)]
    seen += [n for n, _ in store.pasts("a", after=seen[-1] if seen else 0)]
    assert seen == [n for n, _ in store.pasts("a")]
    assert len(seen) == 75


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "",
        "nosuch://x/y",
        "mysql://x/y",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:////proc/nope/m.sqlite3",
        "sqlite:////dev/null/m.sqlite3",
        "postgresql+psycopg://postgres:hush@127.0.0.1:1/test?connect_timeout=2",
    ],
)
def test_a_bad_database_url_is_one_clear_line_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        MemoryStore(url)
    assert str(caught.value).startswith("setting memory_database: ")
    assert "\n" not in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_file_that_is_no_database_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "m.sqlite3").write_bytes(b"this is no database" * 100)
    with pytest.raises(ConfigError, match="setting memory_database: cannot open"):
        MemoryStore(f"sqlite:///{tmp_path / 'm.sqlite3'}")


def test_a_server_that_restarted_costs_nothing(postgres: str) -> None:
    store, engine = MemoryStore(f"{postgres}&application_name=memory_restarted"), sa.create_engine(postgres)
    store.remember("a", past("one"))
    kill = "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE application_name = 'memory_restarted'"
    with engine.connect() as connection:
        assert set(connection.execute(sa.text(kill)).scalars()) == {True}
    engine.dispose()
    store.remember("a", past("two"))
    assert store.stats("a").trajectories == 2


def test_a_past_is_any_sequence(store: MemoryStore) -> None:
    one = past()
    store.remember("a", replace(one, history=list(one.history)))
    assert [found for _, found in store.pasts("a")] == [one]
