"""Alerts and dashboard: Prometheus accepts them, and they query only metrics that the product exports."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from headgate.local.servers.base import free_port
from headgate_operator.resources import Phase, Status, StreamAppSpec
from headgate_operator.resources.release import release_for
from headgate_operator.resources.status import PhaseTime, Upgrade, UpgradeKind
from headgate_operator.runtime.health_server import COUNTED, OperatorCollector
from headgate_operator.runtime.metrics import Counters
from streamcore.engine.lag import Lag
from streamcore.memory.memory_use import MemoryUse
from streamcore.outages import OUTAGES, Dependency
from streamcore.telemetry import Telemetry, TelemetrySettings
from tests.harness.apps.cut_reports import cut_report
from tests.harness.servers.chart import CHART, EVERYTHING, program, render_manifests, select_kind

_SPEC = {"service": "rules", "image": "headgate:2", "config": {}, "checkpoint": {"root": "/checkpoints"}}
_UPGRADE = Upgrade(
    1,
    UpgradeKind.UPGRADE,
    release_for(StreamAppSpec.model_validate(_SPEC), 1),
    0,
    phases=(PhaseTime(Phase.PREFLIGHT, 0), PhaseTime(Phase.STOPPING, 1)),
)
_BY_NAME = (
    *("cuts", "lanes", "reasons", "counters", "sink_rows", "sink_rejected", "markers", "candidates", "matches"),
    *("rule_state_entries", "rule_state_bytes", "budgets_reached", "busy_us", "waiting_us"),
    *("cold", "cold_moves", "ids_forgotten", "event_ids", "event_id_bytes"),
)
_DASHBOARD = CHART / "files/dashboard.json"


@pytest.fixture(name="metrics", scope="module")
def _metrics() -> frozenset[str]:
    """Return every series that a driver and the operator export."""
    port = free_port()
    with Telemetry(TelemetrySettings("rules", port)) as telemetry:
        totals = telemetry.totals
        telemetry.cut(replace(cut_report(), latencies_ms={"alerts": 400}))
        for name in _BY_NAME:
            getattr(totals, name)["one"] = 1
        totals.function_counts["velocity.alarms"] = totals.function_gauges["velocity.cards"] = 1
        totals.partition_delay_ms["shop", "0"] = 1
        totals.duplicates["shop.same"] = 1
        telemetry.watch(lambda: Lag(1, 1))
        telemetry.watch_lineage({"sent": 1})
        telemetry.watch_memory(lambda: MemoryUse(700, 1_000, ()))
        telemetry.savepoint_done(1)
        telemetry.progress({"durationMs": {"commit": 1}})
        away = Dependency("Schema registry http://r", "The cut waits", "Start it", grace_s=0)
        OUTAGES.failed(away, "refused")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
            text = response.read().decode()
        OUTAGES.succeeded(away)
    counters, registry = Counters(), CollectorRegistry()
    for of in COUNTED:
        counters.add(of, "one")
    registry.register(OperatorCollector(counters, lambda: {("shop", "rules"): Status(upgrade=_UPGRADE)}))
    return _series(text + generate_latest(registry).decode())


def _series(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z_]+)(?:\{| )", text, re.M))


def metric_names(expression: str) -> set[str]:
    return set(re.findall(r"headgate_[a-z_]+", expression))


def _alerts() -> list[dict[str, Any]]:
    (rules,) = select_kind(render_manifests(EVERYTHING), "PrometheusRule").values()
    return [rule for group in rules["spec"]["groups"] for rule in group["rules"]]


def test_alerts_query_only_existing_metrics(metrics: frozenset[str]) -> None:
    for alert in _alerts():
        assert metric_names(alert["expr"]) <= metrics, alert["alert"]


def test_the_dashboard_queries_only_existing_metrics(metrics: frozenset[str]) -> None:
    board = json.loads(_DASHBOARD.read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    expressions += [one["query"]["query"] for one in board["templating"]["list"] if isinstance(one["query"], dict)]
    assert expressions
    for expression in expressions:
        assert metric_names(expression) <= metrics, expression


def test_the_chart_contains_the_dashboard_and_its_panels_do_not_overlap() -> None:
    made = select_kind(render_manifests(EVERYTHING), "ConfigMap")["demo-headgate-dashboard"]
    board = json.loads(made["data"]["headgate.json"])
    assert board == json.loads(_DASHBOARD.read_text())
    places = [(p["gridPos"]["y"], p["gridPos"]["x"]) for p in board["panels"]]
    assert len(set(places)) == len(places) == len({p["id"] for p in board["panels"]})


def test_the_reference_page_lists_every_metric_and_no_other(metrics: frozenset[str]) -> None:
    page = (CHART.parents[1] / "docs/reference/metrics.md").read_text()
    named = set(re.findall(r"^\| `(headgate_[a-z_]+)` \|", page, re.MULTILINE))
    histograms = ("_bucket", "_count", "_sum")
    exported = {name for name in metrics if name.startswith("headgate_") and not name.endswith(histograms)}
    assert named == exported | {name.removesuffix("_bucket") for name in metrics if name.endswith("_bucket")}


@pytest.fixture(name="rules_file")
def _rules_file(tmp_path: Path) -> Path:
    (rules,) = select_kind(render_manifests(EVERYTHING), "PrometheusRule").values()
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rules["spec"]))
    return file


def _promtool(*arguments: str, cwd: Path) -> None:
    completed = subprocess.run([program("promtool"), *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stdout + completed.stderr


def test_promtool_accepts_the_alerts(rules_file: Path) -> None:
    _promtool("check", "rules", rules_file.name, cwd=rules_file.parent)


#: Series a minute, and the alerts that must be there after so long; of none if the list is empty.
_CASES: dict[str, tuple[dict[str, str], str, set[str]]] = {
    "behind": ({'headgate_lag_time_seconds{namespace="n",app="a"}': "400x30"}, "10m", {"HeadgateLag"}),
    "keeps-up": ({'headgate_lag_time_seconds{namespace="n",app="a"}': "4x30"}, "10m", set()),
    "stuck": ({'headgate_cut_clock_seconds{namespace="n",app="a"}': "10x30"}, "10m", {"HeadgateNoBatch"}),
    "not-begun": ({'headgate_cut_clock_seconds{namespace="n",app="a"}': "0x30"}, "10m", set()),
    "crash-loop": ({'headgate_app_restarts{namespace="n",app="a"}': "3x30"}, "10m", {"HeadgateRestarts"}),
    "dead-letters": (
        {
            'headgate_deadletters_total{namespace="n",app="a",reason="json"}': "0+10x60",
            'headgate_events_total{namespace="n",app="a"}': "0+100x60",
        },
        "30m",
        {"HeadgateDeadLetters"},
    ),
    "few-dead-letters": (
        {
            'headgate_deadletters_total{namespace="n",app="a",reason="json"}': "0+1x60",
            'headgate_events_total{namespace="n",app="a"}': "0+1000x60",
        },
        "30m",
        set(),
    ),
    "old-savepoint": (
        {'headgate_savepoint_age_seconds{namespace="n",app="a"}': "90000x60"},
        "30m",
        {"HeadgateSavepointOld"},
    ),
    "memory": (
        {
            'headgate_memory_used_bytes{namespace="n",app="a"}': "950x60",
            'headgate_memory_limit_bytes{namespace="n",app="a"}': "1000x60",
        },
        "30m",
        {"HeadgateMemoryHigh"},
    ),
    "memory-without-limit": ({'headgate_memory_used_bytes{namespace="n",app="a"}': "950x60"}, "30m", set()),
    "clock": ({'headgate_clock_ahead_seconds{namespace="n",app="a"}': "3600x30"}, "10m", {"HeadgateClockAhead"}),
    "quarantine": (
        {'headgate_rules_budget_reached_total{namespace="n",app="a",budget="rule"}': "0 0 1x30"},
        "10m",
        {"HeadgateRuleQuarantined"},
    ),
    "person": ({'headgate_app_phase{namespace="n",app="a",phase="NeedsHuman"}': "1x30"}, "5m", {"HeadgateNeedsHuman"}),
    "rolled-back": (
        {'headgate_app_phase{namespace="n",app="a",phase="RolledBack"}': "1x30"},
        "5m",
        {"HeadgateRolledBack"},
    ),
    "not-ready": ({'headgate_app_ready{namespace="n",app="a"}': "0x60"}, "30m", {"HeadgateNotReady"}),
    "suspended": (
        {
            'headgate_app_ready{namespace="n",app="a"}': "0x60",
            'headgate_app_phase{namespace="n",app="a",phase="Suspended"}': "1x60",
        },
        "30m",
        set(),
    ),
}


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("case", sorted(_CASES))
def test_each_alert_fires_under_its_condition_and_no_other(case: str, rules_file: Path) -> None:
    series, at, wanted = _CASES[case]
    reconciling = {'headgate_operator_reconciles_total{result="all"}': "0+60x60"}
    names = sorted({alert["alert"] for alert in _alerts()})
    text = {
        "rule_files": [rules_file.name],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": v} for name, v in (series | reconciling).items()],
                "promql_expr_test": [
                    {
                        "expr": f'count by (alertname) (ALERTS{{alertstate="firing",alertname="{name}"}})',
                        "eval_time": at,
                        "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}] if name in wanted else [],
                    }
                    for name in names
                ],
            }
        ],
    }
    (rules_file.parent / "test.yaml").write_text(yaml.safe_dump(text))
    _promtool("test", "rules", "test.yaml", cwd=rules_file.parent)
