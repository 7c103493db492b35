"""The HTTP server of the operator: probes and metrics."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headgate_operator.resources import Phase, Status, StreamAppSpec
from headgate_operator.resources.release import release_for
from headgate_operator.resources.status import Condition, PhaseTime, Upgrade, UpgradeKind
from headgate_operator.runtime import liveness
from headgate_operator.runtime.health_server import serve
from headgate_operator.runtime.metrics import Counters

_RELEASE = release_for(
    StreamAppSpec.model_validate(
        {"service": "rules", "image": "headgate:2", "config": {}, "checkpoint": {"root": "/checkpoints"}}
    ),
    1,
)
_PHASES = ((Phase.PREFLIGHT, 1_000), (Phase.STOPPING, 5_000), (Phase.STARTING, 7_500), (Phase.ROLLING_BACK, 8_500))
_UPGRADE = Upgrade(
    1,
    UpgradeKind.UPGRADE,
    _RELEASE,
    1_000,
    phases=tuple(PhaseTime(*one) for one in (*_PHASES, (Phase.STARTING, 9_000), (Phase.ROLLED_BACK, 9_250))),
)
_READY = Condition("Ready", "True", "Running", "", 0)
_APPS = {
    ("shop", "rules"): Status(phase=Phase.STABLE, conditions=(_READY,), upgrade=_UPGRADE),
    ("shop", "etl"): Status(phase=Phase.NEEDS_HUMAN, restarts=2),
}


@pytest.fixture(name="url")
def _url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("HEADGATE_LIVENESS_FILE", str(tmp_path / "liveness"))
    counters = Counters()
    counters.add("api_calls", "PATCH pods", 3)
    server = serve(0, counters, lambda: _APPS)
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_operator_is_alive_while_its_loop_runs_and_dead_when_the_loop_stops(url: str) -> None:
    assert _get(f"{url}/healthz")[0] == 503
    liveness.liveness_file().touch()
    assert _get(f"{url}/healthz")[0] == 200
    old = liveness.liveness_file().stat().st_mtime - liveness.STALE_S - 1
    os.utime(liveness.liveness_file(), (old, old))
    assert _get(f"{url}/healthz")[0] == 503


def test_metrics_have_phase_readiness_and_upgrade_duration_of_each_app(url: str) -> None:
    families = text_string_to_metric_families(_get(f"{url}/metrics")[1])
    samples = {(one.name, *sorted(one.labels.values())): one.value for family in families for one in family.samples}
    assert samples == {
        ("headgate_operator_api_calls_total", "PATCH pods"): 3,
        ("headgate_app_phase", "Stable", "rules", "shop"): 1,
        ("headgate_app_phase", "NeedsHuman", "etl", "shop"): 1,
        ("headgate_app_ready", "rules", "shop"): 1,
        ("headgate_app_ready", "etl", "shop"): 0,
        ("headgate_app_restarts", "rules", "shop"): 0,
        ("headgate_app_restarts", "etl", "shop"): 2,
        ("headgate_app_upgrade_phase_seconds", "Preflight", "rules", "shop"): 4,
        ("headgate_app_upgrade_phase_seconds", "Stopping", "rules", "shop"): 2.5,
        ("headgate_app_upgrade_phase_seconds", "Starting", "rules", "shop"): 1.25,
        ("headgate_app_upgrade_phase_seconds", "RollingBack", "rules", "shop"): 0.5,
    }


def test_an_unknown_path_is_not_found(url: str) -> None:
    assert _get(f"{url}/")[0] == 404
