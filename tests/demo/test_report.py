"""The report's arithmetic and both of its forms."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from agentspec.proxy.bench.environment import environment
from agentspec.proxy.bench.figures import Figure, Report, print_report, shown
from agentspec.proxy.demo.agent import Answer, Span
from agentspec.proxy.demo.outcomes import Outcomes, count
from agentspec.proxy.demo.questions import Question
from agentspec.proxy.demo.report import DemoReport, Pair, ratio_interval
from agentspec.proxy.demo.show import show, waterfall

QUESTION = Question("Where is it?", "Lyon")


def answer(model: float, tool: float, text: str = "In Lyon.") -> Answer:
    spans = (Span("model", "track", 0.0, model), Span("tool", "track", model, model + tool))
    return Answer(text, ('track({}) -> {"place": "Lyon"}',), model + tool, spans)


def pair(serial: float = 10.0, speculative: float = 7.0) -> Pair:
    return Pair(QUESTION, answer(serial / 2, serial / 2), answer(serial / 2, speculative - serial / 2))


BOOKS = Outcomes(
    hits=4, joined=1, misses=1, probe_hits=3, claims=6, served=5, by_predictor={"probe": {"hit": 3, "miss": 1}}
)
REPORT = DemoReport((pair(10.0, 7.0), pair(20.0, 14.0)), BOOKS)


def test_the_figures_that_the_bar_is_set_on() -> None:
    figures = REPORT.figures()
    expected = {"serial_s": 30.0, "agentspec_s": 21.0, "ratio": 0.7, "ratio_high": 0.7, "probe_hits": 3}
    expected |= {"hits_per_claim": 5 / 6, "same_result": True, "right_answers": 2, "tool_share": 0.5}
    assert {name: figures.value(name) for name in expected} == pytest.approx(expected)


def test_the_interval_holds_the_ratio_and_widens_with_the_spread() -> None:
    even = [(7.0, 10.0), (7.1, 10.0), (6.9, 10.0), (7.0, 10.0)]
    odd = [(4.0, 10.0), (10.0, 10.0), (5.0, 10.0), (9.0, 10.0)]
    (low, high), (wide_low, wide_high) = ratio_interval(even), ratio_interval(odd)
    assert low <= 0.7 <= high
    assert wide_low < low
    assert high < wide_high <= 1.0
    assert ratio_interval(odd) == (wide_low, wide_high)  # the same every time


def test_json_is_one_object_in_the_agreed_shape(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(REPORT, as_json=True) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == {"figures", "machine", "commit", "date"}
    assert all(set(figure) == {"name", "value", "unit", "low", "high", "n"} for figure in printed["figures"])
    ratio = next(figure for figure in printed["figures"] if figure["name"] == "ratio")
    assert ratio["low"] == pytest.approx(0.7)
    assert ratio["n"] == 2


def test_the_table_shows_answers_figures_and_outcomes() -> None:
    console = Console(record=True, width=140, file=io.StringIO())
    assert show(REPORT, as_json=False, console=console) == 0
    printed = console.export_text()
    for expected in ("Where is it?", "In Lyon.", "hits_per_claim", "how the bets ended", "probe", "agentspec 14.0 s"):
        assert expected in " ".join(printed.replace("█", "").replace("▒", "").split())


def test_an_answer_that_differs_between_the_arms_fails_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    odd = replace(pair(), speculative=answer(5.0, 2.0, "It is in Lyon, I think."))
    assert show(DemoReport((odd,), BOOKS), as_json=True) == 1
    said = capsys.readouterr().err
    assert "differ" in said
    assert "'In Lyon.'" in said
    assert "'It is in Lyon, I think.'" in said


def test_the_same_words_after_another_call_are_not_the_same_result() -> None:
    other = replace(answer(5.0, 2.0), calls=("stock({}) -> {}",))
    assert not replace(pair(), speculative=other).identical


def test_a_wrong_answer_fails_the_demo_even_if_both_arms_give_it(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = Pair(QUESTION, answer(5.0, 5.0, "In Turin."), answer(5.0, 2.0, "In Turin."))
    assert show(DemoReport((wrong,), BOOKS), as_json=True) == 1
    assert "'Lyon'" in capsys.readouterr().err


def test_outcomes_are_counted_by_predictor() -> None:
    rows = [("probe", "hit"), ("probe", "hit"), ("probe", "unclaimed"), ("recall", "hit"), ("recall", "joined")]
    claims = [{"effect": "read", "outcome": ended} for ended in ("hit", "hit", "joined", "miss")]
    claims.append({"effect": "write", "outcome": "miss"})
    outcomes = count([{"predictor": predictor, "outcome": outcome} for predictor, outcome in rows], claims)
    assert (outcomes.hits, outcomes.probe_hits, outcomes.joined, outcomes.unclaimed) == (3, 2, 1, 1)
    assert (outcomes.claims, outcomes.hits_per_claim) == (4, 0.75)
    assert outcomes.by_predictor["recall"] == {"hit": 1, "joined": 1}
    assert count([], []).hits_per_claim == 0.0


def test_the_waterfall_draws_both_arms_on_one_scale() -> None:
    serial, speculative = waterfall(pair(10.0, 5.0)).plain.splitlines()[1:3]
    assert (serial.count("█"), serial.count("▒")) == (28, 28)
    assert (speculative.count("█"), speculative.count("▒")) == (28, 0)


def test_the_environment_says_where_a_figure_comes_from() -> None:
    found = environment()
    assert set(found) == {"machine", "commit", "date"}
    assert set(found["machine"]) == {"os", "cpu", "cores", "memory_gb", "python", "torch"}
    assert found["machine"]["cores"] >= 1


def test_figures_print_as_a_table_or_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("t", (Figure("a", 0.123456, "s", 0.1, None, 3), Figure("b", True)), {"commit": None})
    print_report(report, as_json=False)
    assert "0.123" in capsys.readouterr().out
    print_report(report, as_json=True)
    assert json.loads(capsys.readouterr().out)["commit"] is None
    with pytest.raises(KeyError):
        report.value("c")


@pytest.mark.parametrize(("value", "cell"), [(None, "–"), (True, "yes"), (0.5, "0.5"), (12345.6, "12346"), (7, "7")])
def test_cells(value: float | None, cell: str) -> None:
    assert shown(value) == cell
