"""What a cut reports can be scraped and is sent, and a service without telemetry loads none of it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from headgate.local.servers.base import free_port
from streamcore.engine.lag import Lag
from streamcore.engine.output import SinkReport
from streamcore.engine.report import CutReport
from streamcore.errors import ConfigError, Retryable
from streamcore.kafka.delivery import CommitOutcome
from streamcore.memory.memory_use import MemoryUse
from streamcore.outages import OUTAGES, Dependency
from streamcore.sinks.sink import WriteOutcome
from streamcore.telemetry import Telemetry, TelemetrySettings
from streamcore.telemetry.definitions import METRICS
from streamcore.telemetry.totals import NAMES, OTHER, MetricTotals, add_all
from streamcore.watermark import END_OF_TIME_MS
from tests.harness.servers.otlp_collector import Collector, collecting

STATE_COUNTERS = {"state_entries.window": 10, "state_bytes.window": 900, "budget_reached.rule": 1}
FUNCTION_COUNTERS = {"__counter.velocity.alarms": 2, "__gauge.velocity.cards": 7}
_DEDUPLICATION = {
    "duplicates": 7,
    "other_content": 2,
    "late": 1,
    "without_id": 4,
    "not_remembered": 1,
    "evicted": 8,
    "ids": 50,
    "bytes": 3_000,
}
DEDUPLICATION_COUNTERS = {f"deduplication.shop.{name}": count for name, count in _DEDUPLICATION.items()}
BUSY_COUNTERS = {"busy_us.sums": 150_000, "busy_us.slow": 900_000}


def cut(batch: int) -> CutReport:
    return CutReport(
        batch=batch,
        epoch=3,
        outcome=CommitOutcome.COMMITTED,
        events=100,
        lanes={"alerts": 2, "deadletters": 1},
        reasons={"not_json": 1},
        offsets={},
        clock_ms=57_000,
        clock_ahead_ms=7_000,
        watermark_ms=40_000,
        watermarks={"shop": {"0": 40_000, "1": 48_000, "2": END_OF_TIME_MS}},
        run_ms=200,
        commit_ms=30,
        state_bytes=4_096,
        shards_loaded=1,
        counters={
            "cold.disk_rows": 4,
            "cold_moves.evicted": 2,
            "window late": 5,
            "candidates.large@1": 9,
            "matches.large@1": 2,
            **STATE_COUNTERS,
            **FUNCTION_COUNTERS,
            **BUSY_COUNTERS,
            **DEDUPLICATION_COUNTERS,
        },
        oversized=0,
        shards=2,
        latencies_ms={"alerts": 400},
        sinks={"postgres": SinkReport(WriteOutcome.COMMITTED, "exactly-once", 7, 1, 12)},
    )


def scrape(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, value in (li.rsplit(" ", 1) for li in lines if li and li[0] != "#")}


def value(samples: dict[str, float], name: str, *labels: str) -> float:
    (found,) = (v for n, v in samples.items() if n.partition("{")[0] == name and all(x in n for x in labels))
    return found


def watch(telemetry: Telemetry) -> None:
    """Set what the metrics read at each scrape."""
    telemetry.watch(lambda: Lag(42, 1_500, 7))
    telemetry.watch_memory(lambda: MemoryUse(700, 1_000, ()))
    telemetry.watch_lineage({"sent": 5, "failed": 2})


def test_prometheus_can_scrape_the_metrics_of_cuts() -> None:
    port = free_port()
    with Telemetry(TelemetrySettings("shop", port)) as telemetry:
        watch(telemetry)
        for batch in range(3):
            telemetry.cut(cut(batch))
        telemetry.progress({"batchId": 2, "durationMs": {"triggerExecution": 250}})
        telemetry.failure(Retryable("away"))
        telemetry.savepoint_done(int(time.time() * 1000) - 60_000)
        registry = Dependency("Schema registry http://r", "The cut waits", "Start it", grace_s=0)
        OUTAGES.failed(registry, "refused")
        samples = scrape(port)
        OUTAGES.succeeded(registry)
        assert "Schema registry http://r" not in "".join(scrape(port)), "it is back"
    assert value(samples, "headgate_dependency_unavailable_seconds", 'system="Schema registry http://r"') >= 0
    assert value(samples, "headgate_events_total") == 300
    assert value(samples, "headgate_records_total", 'lane="alerts"') == 6
    assert value(samples, "headgate_deadletters_total", 'reason="not_json"') == 3
    assert value(samples, "headgate_counters_total", 'counter="window late"') == 15
    assert value(samples, "headgate_lag_rows") == 42
    assert value(samples, "headgate_control_lag_rows") == 7
    assert value(samples, "headgate_lag_time_seconds") == 1.5
    assert value(samples, "headgate_clock_ahead_seconds") == 7
    assert value(samples, "headgate_cut_clock_seconds") == 50
    assert value(samples, "headgate_watermark_delay_seconds") == 10
    for partition, seconds in ((0, 10), (1, 2), (2, 0)):
        labels = ('topic="shop"', f'partition="{partition}"')
        assert value(samples, "headgate_partition_watermark_delay_seconds", *labels) == seconds
    assert value(samples, "headgate_state_written_bytes_total") == 3 * 4_096
    assert value(samples, "headgate_rule_candidates_total", 'rule="large@1"') == 27
    assert value(samples, "headgate_rule_matches_total", 'rule="large@1"') == 6
    assert value(samples, "headgate_rules_state_entries", 'kind="window"') == 10
    assert value(samples, "headgate_rules_state_bytes", 'kind="window"') == 900
    assert value(samples, "headgate_rules_budget_reached_total", 'budget="rule"') == 3
    assert value(samples, "headgate_state_paged", 'kind="disk_rows"') == 4
    assert value(samples, "headgate_state_moves_total", 'kind="evicted"') == 6
    for name, figure, *content in (
        ("duplicates_total", 3 * 5, 'content="same"'),
        ("duplicates_total", 3 * 2, 'content="other"'),
        ("deduplication_ids", 50),
        ("deduplication_state_bytes", 3_000),
        ("deduplication_forgotten_total", 3 * 9),
    ):
        assert value(samples, f"headgate_{name}", 'stream="shop"', *content) == figure
    assert value(samples, "headgate_counters_total", 'counter="deduplication.shop.late"') == 3
    assert value(samples, "headgate_memory_used_bytes") == 700
    assert value(samples, "headgate_memory_limit_bytes") == 1_000
    assert value(samples, "headgate_marker", 'sink="postgres"') == 2
    assert value(samples, "headgate_sink_rejected_total", 'sink="postgres"') == 3
    results = [value(samples, "headgate_lineage_events_total", f'result="{name}"') for name in ("sent", "failed")]
    assert [value(samples, "headgate_restarts_total"), *results] == [1, 5, 2]
    assert value(samples, "headgate_cut_duration_seconds_count", 'phase="run"') == 3
    assert value(samples, "headgate_cut_duration_seconds_sum", 'phase="spark triggerExecution"') == 0.25
    assert value(samples, "headgate_lane_latency_seconds_count", 'lane="alerts"') == 3
    assert value(samples, "headgate_lane_latency_seconds_sum", 'lane="alerts"') == pytest.approx(1.2)
    for step, busy_s, waiting_s in (("sums", 0.45, 0.75), ("slow", 2.7, 0)):  # of 3 cuts of 200 ms on 2 shards
        label = f'operator="{step}"'
        assert value(samples, "headgate_operator_busy_seconds_total", label) == pytest.approx(busy_s)
        assert value(samples, "headgate_operator_waiting_seconds_total", label) == pytest.approx(waiting_s)
    assert 59 < value(samples, "headgate_savepoint_age_seconds") < 600
    for metric in METRICS:
        assert any(re.match(rf"{metric.prometheus_name}(_bucket)?({{|$)", name) for name in samples), metric.name


def test_of_many_partitions_the_metrics_show_those_furthest_behind() -> None:
    figures = MetricTotals()
    figures.add(
        replace(cut(1), clock_ms=10_000, clock_ahead_ms=0, watermarks={"shop": {str(n): n for n in range(10 * NAMES)}})
    )
    assert figures.partition_delay_ms == {("shop", str(n)): 10_000 - n for n in range(NAMES)}


def test_a_port_in_use_is_an_error_that_leaves_nothing_open() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match=str(port)):
            Telemetry(TelemetrySettings("shop", port))


@pytest.fixture
def collector() -> Iterator[str]:
    with collecting() as url:
        yield url


def test_a_cut_is_a_trace_with_its_phases_and_sinks(collector: str) -> None:
    with Telemetry(TelemetrySettings("shop", otlp_endpoint=collector)) as telemetry:
        telemetry.cut(cut(7))
    assert {"/v1/traces", "/v1/metrics"} <= {path for path, _ in Collector.taken}
    (body,) = (body for path, body in Collector.taken if path == "/v1/traces")
    request = ExportTraceServiceRequest.FromString(body)
    (resource,) = request.resource_spans
    spans = {span.name: span for scope in resource.scope_spans for span in scope.spans}
    assert set(spans) == {"cut", "run", "sink", "transaction"}
    whole = spans["cut"]
    assert whole.end_time_unix_nano - whole.start_time_unix_nano == 230_000_000
    for name in ("run", "sink", "transaction"):
        part = spans[name]
        assert part.parent_span_id == whole.span_id
        assert whole.start_time_unix_nano <= part.start_time_unix_nano <= part.end_time_unix_nano
        assert part.end_time_unix_nano <= whole.end_time_unix_nano


PARENT = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")


def test_a_request_is_a_span_in_the_trace_of_its_sender(collector: str) -> None:
    began_ns = time.time_ns()
    with Telemetry(TelemetrySettings("shop", otlp_endpoint=collector)) as telemetry:
        telemetry.command_done("drain", f"00-{PARENT[0]}-{PARENT[1]}-01", began_ns)
    (span,) = Collector.spans()
    assert (span.name, span.trace_id.hex(), span.parent_span_id.hex()) == ("drain", *PARENT)
    assert began_ns == span.start_time_unix_nano <= span.end_time_unix_nano <= time.time_ns()


@pytest.mark.slow
@pytest.mark.parametrize(
    "nonsense",
    [None, "", "7", "\x00", "00-xyz", f"ff-{PARENT[0]}-{PARENT[1]}-01", f"00-{'0' * 32}-{PARENT[1]}-01", "00" * 9_999],
)
def test_an_invalid_traceparent_is_ignored(nonsense: str | None, collector: str) -> None:
    with Telemetry(TelemetrySettings("shop", otlp_endpoint=collector)) as telemetry:
        telemetry.command_done("go", nonsense, time.time_ns())
    (span,) = Collector.spans()
    assert (span.name, span.parent_span_id) == ("go", b"")
    assert span.trace_id.hex() != PARENT[0]


def test_too_many_names_are_counted_under_one_label() -> None:
    totals: dict[str, int] = {}
    add_all(totals, {str(n): 1 for n in range(10 * NAMES)})
    assert len(totals) <= NAMES + 1
    assert sum(totals.values()) == 10 * NAMES
    assert totals[OTHER] == 9 * NAMES


@pytest.mark.slow
def test_a_service_without_telemetry_and_without_a_pod_loads_no_client_for_them() -> None:
    code = (
        "import sys; import streamcore.service.main; "
        "print([m for m in sys.modules if m.split('.')[0] in ('opentelemetry', 'prometheus_client', 'kubernetes')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
