"""Who may look: keys and tenants, this machine only without keys, pages and names of others, what may be changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from agentspec.config import Settings
from agentspec.errors import RequestError
from agentspec.proxy.dashboard.entrance import Entrance
from agentspec.proxy.doors import Doors, hash_of, new_key
from tests.contract.scripted import eventually
from tests.dashboard.scene import Scene
from tests.dashboard.talks import TALKS, where_is

ACME, OTHER = new_key(), new_key()
KEYS = [{"tenant": "acme", "sha256": hash_of(ACME).hex()}, {"tenant": "other", "sha256": hash_of(OTHER).hex()}]
API = (
    "session", "runs", "live", "run?id=x", "content?turn=x", "savings", "waste", "calibration", "tools", "memory",
    "health",
)  # fmt: skip
CHANGES = {"x-agentspec-dashboard": "1"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A proxy with two keys, under each of which an agent has worked."""
    talks = [*TALKS, where_is("secret-of-acme", "4417", "PX31"), where_is("secret-of-other", "4420", "PX58")]
    with Scene(tmp_path_factory.mktemp("kept"), talks, keys=KEYS, upstream_key="u") as scene:
        scene.plays("secret-of-acme", "lost-parcel", key=ACME, scope="alice")
        scene.plays("secret-of-other", "is-it-open", key=OTHER, scope="oscar")
        store = scene.app._deps.desk.learner.memories.store
        tenants = ("key:acme", "key:other")
        eventually(lambda: all(store.stats(one).trajectories == 2 for one in tenants), "memory has learnt from both")
        yield scene


@pytest.fixture(scope="module")
def asked(kept: Scene) -> Iterator[Callable[..., httpx.Response]]:
    """asked(path, key): an answer of the API."""
    with httpx.Client(base_url=f"{kept.url}/dashboard/api/", trust_env=False, timeout=20) as client:

        def ask(path: str, key: str | None, **more: Any) -> httpx.Response:
            headers = {"authorization": f"Bearer {key}"} if key else {}
            return client.get(path, headers={**headers, **more.pop("headers", {})}, **more)

        yield ask


@pytest.mark.parametrize("key", [None, "ask-wrong", "", ACME[:-1]], ids=["none", "wrong", "empty", "cut off"])
@pytest.mark.parametrize("path", API)
def test_without_a_key_of_ours_no_data_is_told(asked: Any, path: str, key: str | None) -> None:
    answer = asked(path, key)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


def test_the_page_itself_needs_no_key_and_tells_nothing(kept: Scene) -> None:
    answer = httpx.get(f"{kept.url}/dashboard", trust_env=False)
    assert answer.status_code == 200 and "secret-of" not in answer.text


@pytest.mark.parametrize(
    ("mine", "theirs", "key"), [("acme", "other", ACME), ("other", "acme", OTHER)], ids=["acme", "other"]
)
def test_nothing_of_one_tenant_shows_to_another(kept: Scene, asked: Any, mine: str, theirs: str, key: str) -> None:
    foreign = next(run["trajectory"] for run in kept.reader.runs() if run["session"] == f"secret-of-{theirs}")
    turns = [turn["id"] for turn in kept.reader.turns(foreign)]
    bets = [bet["id"] for turn in kept.reader.turns(foreign) for bet in turn["bets"]]
    told = {path: asked(path, key).text for path in API if path != "live"}
    told["tenant"] = asked(f"memory?tenant=key:{theirs}", key).text
    told["search"] = asked(f"runs?text=secret-of-{theirs}", key).text
    told["live"] = first_event(kept, key)
    assert f"secret-of-{mine}" in told["runs"] and f"secret-of-{mine}" in told["live"]
    assert f"secret-of-{mine}" in told["memory"] and f"secret-of-{mine}" in told["tenant"]
    user = {"acme": "oscar", "other": "alice"}[mine]
    for path, text in told.items():
        for hidden in (f"secret-of-{theirs}", f"key:{theirs}", user, *turns, *bets):
            assert hidden not in text, (path, hidden)
    assert asked(f"run?id={foreign}", key).status_code == 404
    assert asked(f"content?turn={turns[0]}", key).json() == {"content": None}


def first_event(scene: Scene, key: str) -> str:
    """What the live list says first."""
    url, headers = f"{scene.url}/dashboard/api/live", {"authorization": f"Bearer {key}"}
    with httpx.stream("GET", url, headers=headers, trust_env=False, timeout=20) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        said = ""
        for part in answer.iter_text():
            said += part
            if "\n\n" in said:
                return said
    raise AssertionError("it said nothing")


def test_sums_count_ones_own_alone(kept: Scene, asked: Any) -> None:
    own = {key: asked("savings", key).json()["totals"] for key in (ACME, OTHER)}
    assert [own[key]["runs"] for key in (ACME, OTHER)] == [2, 2]
    assert own[ACME]["failed"] == 1 and own[OTHER]["failed"] == 0
    tools = {key: {one["name"]: one for one in asked("tools", key).json()["tools"]} for key in (ACME, OTHER)}
    assert [tools[key]["track_parcel"]["calls"] for key in (ACME, OTHER)] == [2, 1]
    assert len(asked("health", ACME).json()["runtimes"]) == 1


def test_nobody_makes_memory_forget_another_tenants(kept: Scene) -> None:
    store = kept.app._deps.desk.learner.memories.store
    before = store.stats("key:other").trajectories
    foreign = store.listing.trajectories("key:other", 10)[0]["trajectory"]
    for what in ({"trajectory": foreign}, {"scope": "oscar"}, {"trajectory": foreign, "tenant": "key:other"}):
        answer = httpx.post(
            f"{kept.url}/dashboard/api/memory/forget",
            json=what,
            headers={**CHANGES, "authorization": f"Bearer {ACME}"},
            trust_env=False,
        )
        assert (answer.status_code, answer.json()) == (200, {"forgotten": 0})
    assert store.stats("key:other").trajectories == before


def test_a_key_is_asked_for_and_opens_its_tenants_runs(kept: Scene, open_page: Any) -> None:
    page = open_page(f"{kept.url}/dashboard")
    field = page.get_by_label("Key of the proxy")
    field.fill("ask-nonsense")
    page.get_by_role("button", name="Open").click()
    page.get_by_text("This key is not known here.").wait_for()
    field.fill(ACME)
    field.press("Enter")
    page.get_by_role("link", name="secret-of-acme").wait_for()
    assert page.get_by_text("secret-of-other").count() == 0
    assert page.get_by_text("acme", exact=True).is_visible()
    page.reload()
    page.get_by_role("link", name="secret-of-acme").wait_for()
    page.get_by_role("button", name="Forget key").click()
    page.get_by_label("Key of the proxy").wait_for()
    assert page.evaluate("Object.keys(sessionStorage)") == []
    assert page.context.cookies() == []


# Without keys


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with Scene(tmp_path_factory.mktemp("plain")) as scene:
        yield scene


FOREIGN = {
    "another name (DNS rebinding)": {"host": "evil.example"},
    "another page": {"origin": "https://evil.example"},
    "another page, sandboxed": {"origin": "null"},
}


@pytest.mark.parametrize("path", ["", "/assets/main.js", "/api/runs", "/api/live"])
@pytest.mark.parametrize("foreign", FOREIGN)
def test_strangers_are_shown_nothing(plain: Scene, path: str, foreign: str) -> None:
    answer = httpx.get(f"{plain.url}/dashboard{path}", headers=FOREIGN[foreign], trust_env=False)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


def test_another_sites_page_gets_no_data_without_an_origin_either(plain: Scene) -> None:
    answer = httpx.get(f"{plain.url}/dashboard/api/runs", headers={"sec-fetch-site": "cross-site"}, trust_env=False)
    assert answer.status_code == 403


@pytest.mark.parametrize(
    "headers",
    [{}, {"content-type": "application/json"}, {"content-type": "text/plain", **CHANGES}],
    ids=["a form", "no header of ours", "no JSON"],
)
def test_what_a_foreign_page_could_send_changes_nothing(plain: Scene, headers: dict[str, str]) -> None:
    body = json.dumps({"tenant": "x", "everything": True})
    url = f"{plain.url}/dashboard/api/memory/forget"
    assert httpx.post(url, content=body, headers=headers, trust_env=False).status_code == 403
    assert httpx.get(url, headers={**headers, **CHANGES}, trust_env=False).status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"[]", 400), (b"{}", 400), (b'{"tenant": "x"}', 400), (b'{"tenant": 1, "everything": true}', 400)],
)
def test_a_wish_to_forget_says_what(plain: Scene, body: bytes, status: int) -> None:
    headers = {"content-type": "application/json", **CHANGES}
    answer = httpx.post(f"{plain.url}/dashboard/api/memory/forget", content=body, headers=headers, trust_env=False)
    assert answer.status_code == status and answer.json()["error"]["message"]


def doors(**settings: Any) -> Entrance:
    made = Settings(upstream="http://127.0.0.1:9/v1", **settings)
    return Entrance(made, Doors(made))


def scope(host: str, client: str | None) -> dict[str, Any]:
    return {"headers": [(b"host", host.encode())], "client": (client, 1) if client else None}


@pytest.mark.parametrize("host", ["127.0.0.1:8787", "localhost:8787", "localhost", "[::1]:8787"])
@pytest.mark.parametrize("client", ["127.0.0.1", "127.8.8.8", "::1", None])
def test_this_machine_may_look_without_keys(host: str, client: str | None) -> None:
    doors().check(scope(host, client))


@pytest.mark.parametrize(
    ("host", "client"), [("agents.example", "127.0.0.1"), ("127.0.0.1", "10.0.0.7"), ("agents.example", "10.0.0.7")]
)
def test_beyond_this_machine_nobody_may_unless_a_setting_says_so(host: str, client: str) -> None:
    allowed = {"allowed_hosts": ("agents.example",)}
    with pytest.raises(RequestError, match="without keys the dashboard is served to this machine only"):
        doors(**allowed).check(scope(host, client))
    doors(**allowed, dashboard_beyond_loopback=True).check(scope(host, client))
    doors(**allowed, keys=KEYS).check(scope(host, client))


def test_a_live_list_does_not_keep_the_proxy_from_ending(new_scene: Callable[..., Scene]) -> None:
    scene = new_scene()
    with httpx.stream("GET", f"{scene.url}/dashboard/api/live", trust_env=False, timeout=20) as answer:
        parts = answer.iter_text()
        assert next(parts).startswith("event: runs")
        scene.app.hang_up()
        assert all(part.startswith(":") for part in parts), "it ends"


@pytest.mark.parametrize("keyed", [False, True])
def test_a_database_that_is_away_is_said_plainly_and_tenants_hear_nothing_of_it(
    new_scene: Callable[..., Scene], keyed: bool
) -> None:
    scene = new_scene(**({"keys": KEYS, "upstream_key": "u"} if keyed else {}))
    with scene.reader.engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE runs"))
    headers = {"authorization": f"Bearer {ACME}"}
    answer = httpx.get(f"{scene.url}/dashboard/api/runs", headers=headers, trust_env=False)
    assert answer.status_code == 503
    said = answer.json()["error"]["message"]
    assert said.startswith("The database does not answer") and ("no such table" in said) is not keyed


def test_it_can_be_switched_off(new_scene: Callable[..., Scene]) -> None:
    assert httpx.get(f"{new_scene(dashboard=False).url}/dashboard", trust_env=False).status_code == 404


def test_every_answer_forbids_what_the_page_does_not_need(plain: Scene) -> None:
    for path in ("", "/api/runs", "/api/nothing", "/assets/main.js", "/assets/nothing.js"):
        answer = httpx.get(f"{plain.url}/dashboard{path}", trust_env=False)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == ("no-cache" if path in ("", "/assets/main.js") else "no-store")


@pytest.mark.parametrize("path", ["/assets/../entrance.py", "/assets/%2e%2e/entrance.py", "/assets/..%2fentrance.py"])
def test_no_other_file_is_served(plain: Scene, path: str) -> None:
    answer = httpx.get(httpx.URL(f"{plain.url}/dashboard{path}"), trust_env=False)
    assert "class Entrance" not in answer.text


def test_other_paths_are_not_the_dashboards(plain: Scene) -> None:
    assert httpx.get(f"{plain.url}/dashboards", trust_env=False).status_code == 404
