"""The files for Grafana and Prometheus: they parse, and every metric that they name is one that the proxy has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from agentspec.proxy.telemetry.metrics import RowMetrics
from tests.sight.metric_names import live_names

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = DEPLOY / "grafana" / "agentspec.json"
NAME = re.compile(r"\b(?:agentspec|process)_[a-z0-9_]+")


def expressions() -> list[str]:
    board = json.loads(DASHBOARD.read_text())
    told = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    told += [variable["definition"] for variable in board["templating"]["list"] if "definition" in variable]
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    return told + [rule["expr"] for rule in rules]


def known() -> set[str]:
    """Every name under which a series of the proxy's can be asked for."""
    registry = CollectorRegistry()
    RowMetrics(registry)
    found = set(live_names())
    for family in registry.collect():
        found |= {"counter": {f"{family.name}_total"}, "gauge": {family.name}}.get(family.type, set())
        if family.type == "histogram":
            found |= {f"{family.name}{end}" for end in ("_bucket", "_count", "_sum")}
    return found


def test_every_metric_in_the_files_is_one_of_ours() -> None:
    named = {name for told in expressions() for name in NAME.findall(told)}
    assert len(named) > 20
    assert named - known() == set()


def test_every_metric_of_ours_is_shown_or_watched() -> None:
    named = {name for told in expressions() for name in NAME.findall(told)}
    ours = {re.sub(r"_(bucket|count|sum)$", "", name) for name in known() if name.startswith("agentspec_")}
    shown = {re.sub(r"_(bucket|count|sum)$", "", name) for name in named}
    assert ours - shown == {"agentspec_build_info"}


def test_prometheus_takes_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian: prometheus) is not installed")
    done = subprocess.run([promtool, "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout


def test_every_alert_says_what_it_means() -> None:
    rules: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    for rule in rules:
        assert {"summary", "description"} <= rule["annotations"].keys(), rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_panels_of_the_dashboard_do_not_lie_on_one_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert all(column < 24 for column, _ in cells)
        taken |= cells
