"""What people see in the browser, by clicking and by keyboard, of runs that a real agent made."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from agentspec.gating.holdout import held_out
from agentspec.proxy.trajectories import trajectory_of
from tests.contract.scripted import eventually
from tests.dashboard.scene import Scene
from tests.dashboard.talks import where_is

axe = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
AXE = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")

PAGES = ("runs", "savings", "waste", "calibration", "tools", "memory", "health")
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}

OpenPage = Callable[..., Any]


def at_rest(page: Any) -> Any:
    """The page when it has been drawn."""
    page.wait_for_selector("main:not([aria-busy]) h1")
    return page


def run_of(scene: Scene, session: str) -> str:
    return next(run["trajectory"] for run in scene.reader.runs() if run["session"] == session)


def run_url(scene: Scene, session: str) -> str:
    return f"{scene.url}/dashboard/run?id={quote(run_of(scene, session))}"


# Each page


def test_why_one_pre_execution_was_discarded_is_found_by_clicking(scene: Scene, open_page: OpenPage) -> None:
    page = at_rest(open_page(f"{scene.url}/dashboard"))
    page.get_by_label("only with discarded runs").check()
    page.get_by_role("link", name="order-4417").click()
    at_rest(page)
    page.get_by_role("button", name="quote").click()
    detail = page.get_by_role("complementary", name="The chosen row")
    said = detail.inner_text()
    assert "Why it was not used" in said
    assert "The model did not make this call: it answered in words and called nothing." in said
    assert "its result was thrown away" in said
    assert re.search(r"It ran: held to be \d+% likely, \d+% was asked, and it would save", said)
    assert '"country": "CH"' in said
    assert detail.get_by_text("miss").is_visible()


def test_the_list_shows_what_the_books_have(scene: Scene, open_page: OpenPage) -> None:
    page = at_rest(open_page(f"{scene.url}/dashboard"))
    rows = page.locator("table.runs tbody tr")
    assert rows.count() == len(scene.reader.runs())
    run = scene.reader.run(run_of(scene, "order-4420"))
    assert run is not None
    row = page.locator("tr", has=page.get_by_role("link", name="order-4420"))
    cells = dict(zip(page.locator("table.runs th[scope=col]").all_inner_texts(), row.locator("> *").all(), strict=True))
    assert cells["Turns"].inner_text() == str(run["turns"])
    assert cells["Calls"].inner_text() == str(run["calls"])
    for outcome in ("hit", "joined", "miss"):
        shown = cells["Predictions by outcome"].locator(f"span.outcome-{outcome}")
        assert [text.strip() for text in shown.all_inner_texts()] == ([str(run[outcome])] if run[outcome] else [])


@pytest.mark.parametrize(
    ("label", "choice", "left"),
    [
        ("Session or id", "ORDER-44", {"order-4417", "order-4420", "order-4402"}),
        ("Outcome", "failed", {"lost-parcel"}),
        ("Outcome", "stale", {"cancel-4458"}),
        ("Model", "is-it-open", {"is-it-open"}),
    ],
)
def test_filters_leave_what_fits(scene: Scene, open_page: OpenPage, label: str, choice: str, left: set[str]) -> None:
    page = at_rest(open_page(f"{scene.url}/dashboard"))
    field = page.get_by_label(label)
    if field.evaluate("field => field.tagName") == "SELECT":
        field.select_option(choice)
    else:
        field.fill(choice)
    links = page.locator("table.runs tbody th a")
    eventually(lambda: set(links.all_inner_texts()) == left, f"{left} alone are listed")
    page.reload()  # the address keeps the filter
    at_rest(page)
    eventually(lambda: set(links.all_inner_texts()) == left)


def test_a_filter_that_nothing_fits_says_so_and_can_be_cleared(scene: Scene, open_page: OpenPage) -> None:
    page = at_rest(open_page(f"{scene.url}/dashboard?text=nobody"))
    assert page.get_by_text("No run fits these filters.").is_visible()
    page.get_by_role("button", name="Clear the filters").click()
    page.get_by_role("link", name="order-4420").wait_for()


def test_a_run_that_goes_on_appears_by_itself(new_scene: Callable[..., Scene], open_page: OpenPage) -> None:
    scene = new_scene()
    page = at_rest(open_page(f"{scene.url}/dashboard"))
    assert page.get_by_text("No runs yet.").is_visible()
    scene.plays("order-4420")
    page.get_by_role("link", name="order-4420").wait_for()
    turns = page.locator("td[data-name=Turns]")
    eventually(lambda: turns.inner_text() == "3", "its turns are counted as they end")
    scene.plays("is-it-open")
    page.get_by_role("link", name="is-it-open").wait_for()
    first = page.locator("table.runs tbody th a").first
    eventually(lambda: first.inner_text() == "is-it-open", "the latest is first")


def test_each_page_says_what_to_do_where_there_is_nothing(new_scene: Callable[..., Scene], open_page: OpenPage) -> None:
    page = at_rest(open_page(f"{new_scene().url}/dashboard"))
    for name in PAGES:
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name.capitalize()).click()
        page.wait_for_function("name => document.title.toLowerCase().startsWith(name)", arg=name)
        at_rest(page)
        assert page.get_by_role("heading", level=1).inner_text().lower() == name
        said = page.locator("main").inner_text()
        assert any(word in said for word in ("yet", "let an agent", "agentspec.connect(")), said


def test_savings_tell_the_sum_and_that_nothing_can_be_measured_yet(scene: Scene, open_page: OpenPage) -> None:
    page = at_rest(open_page(f"{scene.url}/dashboard/savings"))
    said = page.locator("main").inner_text()
    assert "Nothing can be measured: the control group is switched off." in said
    saved = page.locator("table[aria-label='Savings by tool'] tr", has_text="track_parcel")
    assert re.search(r"\d\ss|\d\sms", saved.inner_text())
    assert page.locator(".chart canvas").count() == 1


def test_savings_are_measured_against_the_control_group(new_scene: Callable[..., Scene], open_page: OpenPage) -> None:
    names = [f"session-{nth}" for nth in range(40)]
    talks = [where_is(name, "4417", "PX31") for name in names]
    scene = new_scene(talks=talks, holdout_share=0.5, memory=False)
    salt = scene.app._deps.salt
    _, shop = scene.runtime()
    assert shop
    tenant = scene.app._deps.doors.tenant([(b"authorization", b"Bearer k")])
    control = [name for name in names if held_out(trajectory_of(tenant, name), salt, 0.5)]
    treated = [name for name in names if name not in control]
    scene.plays(*control[:2], *treated[:2], at_once=4)
    page = at_rest(open_page(f"{scene.url}/dashboard/savings"))
    said = page.locator("main").inner_text()
    assert "Treated: 2 runs, 6 turns. Control: 2 runs, 6 turns (setting holdout_share, now 50.0\u202f%)." in said
    assert re.search(r"A turn took [+\u2212]?\S+\ss|ms compared with the control group \(95% interval", said)
    assert page.locator(".interval").get_attribute("aria-label")
    page.goto(f"{scene.url}/dashboard")
    at_rest(page)
    assert page.locator(".badge", has_text="control").count() == 2


def test_waste_leads_to_the_very_run(scene: Scene, open_page: OpenPage) -> None:
    page = at_rest(open_page(f"{scene.url}/dashboard/waste"))
    told = page.locator("table[aria-label='The latest discarded runs'] tr", has_text="search_web")
    assert "yes" in told.locator("[data-name='Told others']").inner_text()
    told.get_by_role("link").click()
    at_rest(page)
    page.locator(".wf-detail .why").wait_for()
    assert page.locator(".wf-detail h2").inner_text() == "ahead search_web"
    assert "Told a third party" in page.locator(".wf-detail").inner_text()


def test_calibration_draws_each_predictor_and_says_its_error(scene: Scene, open_page: OpenPage) -> None:
    page = at_rest(open_page(f"{scene.url}/dashboard/calibration"))
    assert {"seer", "recall"} <= set(page.locator(".tile h2").all_inner_texts())
    seer = page.locator(".tile", has=page.get_by_role("heading", name="seer"))
    assert re.search(r"0\.\d{3} calibration error \(ECE\), \d+ predictions", seer.inner_text())
    assert "promised" in (seer.get_by_role("img").get_attribute("aria-label") or "")


def test_tools_say_what_their_owners_declared(scene: Scene, open_page: OpenPage) -> None:
    page = at_rest(open_page(f"{scene.url}/dashboard/tools"))
    mail = page.locator("tr", has_text="send_mail").first
    assert "never: it cannot be undone" in mail.inner_text()
    assert "egress" in page.locator("tr", has_text="search_web").first.inner_text()
    assert "tool_runs_per_minute" in page.locator("main").inner_text()


def test_health_says_that_all_is_well(scene: Scene, open_page: OpenPage) -> None:
    page = at_rest(open_page(f"{scene.url}/dashboard/health"))
    said = page.locator("main").inner_text()
    assert "answers" in said and "nothing is missing from the books" in said and "none since the start" in said
    assert page.locator("table[aria-label=Runtimes] tbody tr").count() == 1


def test_memory_tells_habits_and_forgets_by_a_click(new_scene: Callable[..., Scene], open_page: OpenPage) -> None:
    scene = new_scene()
    scene.plays("order-4420", "order-4402", scope="anna")
    store = scene.app._deps.desk.learner.memories.store
    (tenant,) = eventually(lambda: store.tenants() if len(store.tenants()) == 1 else None, "memory has learnt")
    eventually(lambda: store.stats(tenant).trajectories == 2)
    page = at_rest(open_page(f"{scene.url}/dashboard/memory"))
    habits = page.locator("section", has=page.get_by_role("heading", name="Habits")).inner_text()
    assert re.search(r"After get_order answered, agents call track_parcel 100\s% of the time", habits)
    assert "parcel of track_parcel always comes from what was said" in page.locator("main").inner_text()
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name=re.compile("Forget the run .*4420")).click()
    assert store.stats(tenant).trajectories == 2, "it asks first"
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name=re.compile("Forget the run .*4420")).click()
    page.get_by_text("1 run forgotten").wait_for()
    assert store.stats(tenant).trajectories == 1
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Forget the end user anna").click()
    page.get_by_text("Memory has kept nothing yet.").wait_for()
    assert page.get_by_role("status").inner_text() == "1 run forgotten, and what was learnt from it."


# The waterfall


def test_a_hit_leads_to_its_call_and_back(scene: Scene, open_page: OpenPage) -> None:
    page = at_rest(open_page(run_url(scene, "order-4420")))
    page.locator(".wf-row.kind-ahead.outcome-hit", has_text="get_order").first.click()
    detail = page.locator(".wf-detail")
    detail.get_by_role("button", name="Show the call that got it").click()
    assert detail.locator("h2").inner_text() == "get_order()"
    assert "Saved" in detail.inner_text()
    assert page.locator(".wf-links path").get_attribute("d") != "M0 0"
    page.keyboard.press("Enter")
    assert detail.locator("h2").inner_text() == "ahead get_order"


def test_the_serial_ghost_is_longer_by_what_was_saved(scene: Scene, open_page: OpenPage) -> None:
    page = at_rest(open_page(run_url(scene, "order-4420")))
    words = page.locator("figure.overview").get_attribute("aria-label") or ""
    assert re.fullmatch(r"As it ran: \S+\ss\. One after the other it would have taken \S+\ss\.", words), words
    ghost = page.locator(".wf-row.kind-tool.outcome-hit .wf-ghost").first
    box = ghost.bounding_box()
    assert box is not None and box["width"] > 5


def test_the_waterfall_is_worked_by_the_keyboard_alone(scene: Scene, open_page: OpenPage) -> None:
    page = at_rest(open_page(run_url(scene, "order-4417")))
    for _ in range(40):
        if page.evaluate("document.activeElement.classList.contains('wf-scroll')"):
            break
        page.keyboard.press("Tab")
    else:
        raise AssertionError("Tab does not lead to the waterfall")
    title = page.locator(".wf-detail h2")
    page.keyboard.press("ArrowDown")
    assert title.inner_text() == "turn 1"
    page.keyboard.press("End")
    last = page.evaluate("document.querySelector('.wf-scroll').getAttribute('aria-activedescendant')")
    assert last == f"wf-{int(page.locator('.wf-scroll').get_attribute('aria-rowcount') or 0) - 1}"
    assert page.locator(f"#{last}").is_visible()
    before = page.locator(".wf-axis").inner_text()
    page.keyboard.press("+")
    assert page.locator(".wf-axis").inner_text() != before
    page.keyboard.press("0")
    assert page.locator(".wf-axis").inner_text() == before
    page.keyboard.press("Escape")
    assert title.count() == 0


def test_hovering_shows_arguments_confidence_and_the_gates_reason(scene: Scene, open_page: OpenPage) -> None:
    page = at_rest(open_page(run_url(scene, "order-4417")))
    page.locator(".wf-row.kind-ahead.outcome-miss").first.hover()
    tip = page.locator(".wf-tip")
    tip.wait_for()
    said = tip.inner_text()
    assert "4471" in said and re.search(r"seer: \d+\s% likely", said) and "was asked" in said


def test_kinds_can_be_left_out(scene: Scene, open_page: OpenPage) -> None:
    page = at_rest(open_page(run_url(scene, "order-4417")))
    rows = page.locator(".wf-row:visible")
    assert page.locator(".wf-row.kind-prediction:visible").count() > 0
    page.get_by_label("predictions not run").uncheck()
    assert page.locator(".wf-row.kind-prediction:visible").count() == 0 < rows.count()


# For everybody


def urls(scene: Scene) -> list[str]:
    return [run_url(scene, "order-4417"), *(f"{scene.url}/dashboard/{name}" for name in PAGES)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_keeps_anybody_out(scene: Scene, open_page: OpenPage, scheme: str) -> None:
    page = open_page(f"{scene.url}/dashboard", color_scheme=scheme)
    what = {"resultTypes": ["violations"], **({"runOnly": ["color-contrast"]} if scheme == "dark" else {})}
    for url in urls(scene) if scheme == "light" else urls(scene)[:2]:
        page.goto(url)
        at_rest(page)
        page.evaluate(AXE)
        found = page.evaluate("what => axe.run(document, what)", what)["violations"]
        assert [(url, one["id"], [node["html"][:200] for node in one["nodes"]][:3]) for one in found] == []


def test_a_phone_shows_all_of_it_without_scrolling_sideways(scene: Scene, open_page: OpenPage) -> None:
    page = open_page(f"{scene.url}/dashboard", **PHONE)
    for url in urls(scene):
        page.goto(url)
        at_rest(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, url


def test_the_theme_is_chosen_and_kept(scene: Scene, open_page: OpenPage) -> None:
    page = at_rest(open_page(f"{scene.url}/dashboard", color_scheme="light"))
    back = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(back)
    page.get_by_role("button", name="Use the dark theme").click()
    dark = page.evaluate(back)
    assert dark != light
    page.reload()
    at_rest(page)
    assert page.evaluate(back) == dark
    assert page.get_by_role("button", name="Use the light theme").is_visible()


def test_a_proxy_that_is_gone_is_said_plainly(new_scene: Callable[..., Scene], open_page: OpenPage) -> None:
    scene = new_scene()
    page = at_rest(open_page(f"{scene.url}/dashboard"))
    scene.stop()
    page.get_by_text("not live: the proxy does not answer").wait_for()
    page.get_by_role("link", name="Health").click()
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert "The proxy does not answer. Is it still running?" in alert.inner_text()


def test_an_unknown_run_and_an_unknown_page_are_said_plainly(scene: Scene, open_page: OpenPage) -> None:
    page = at_rest(open_page(f"{scene.url}/dashboard/run?id=nobody"))
    assert "there is no run 'nobody'" in page.get_by_role("alert").inner_text()
    page.goto(f"{scene.url}/dashboard/nowhere")
    page.get_by_role("heading", name="There is no such page").wait_for()
