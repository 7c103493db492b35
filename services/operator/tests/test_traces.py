"""An upgrade is one trace: its spans, and that sending them blocks nothing."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1 import trace_pb2

from headgate_operator.reconcile import reconcile
from headgate_operator.reconcile.actions import SendCommand
from headgate_operator.reconcile.observed import Desired, Observed, PodView
from headgate_operator.resources import Phase, Status, StreamAppSpec
from headgate_operator.resources.release import release_for
from headgate_operator.resources.status import (
    RESTING,
    Checkpoint,
    PendingCommand,
    PhaseTime,
    PodRef,
    Upgrade,
    UpgradeOutcome,
)
from headgate_operator.resources.status import UpgradeKind as Kind
from headgate_operator.runtime.actuator import KubernetesActuator
from headgate_operator.runtime.api_client import Json, Rest
from headgate_operator.runtime.informer_cache import APPS, Cache
from headgate_operator.runtime.metrics import Counters
from headgate_operator.runtime.otlp_traces import NO_TRACES, OtlpTraces, Traces, traces
from headgate_operator.runtime.parse import read_app, write_status
from headgate_operator.runtime.reconcile_once import CachedApp
from headgate_operator.traces import AppRef, Span, ended_upgrade, trace_spans, traceparent
from streamcore.control.commands import Drain
from tests.harness.servers.otlp_collector import Collector, collecting

_SPEC = StreamAppSpec.model_validate(
    {"service": "rules", "image": "headgate:2", "config": {}, "checkpoint": {"root": "/checkpoints"}}
)
_APP = AppRef("shop", "rules", "0a1b2c3d-aaaa")
_UPGRADE = Upgrade(
    7,
    Kind.UPGRADE,
    release_for(_SPEC, 1),
    1_000,
    from_version="1",
    phases=tuple(
        PhaseTime(*one)
        for one in (
            (Phase.PREFLIGHT, 1_000),
            (Phase.STOPPING, 5_000),
            (Phase.STARTING, 7_500),
            (Phase.ROLLING_BACK, 8_500),
            (Phase.STARTING, 9_000),
            (Phase.ROLLED_BACK, 9_250),
        )
    ),
    outcome=UpgradeOutcome.ROLLED_BACK,
    reason="StartTimeout",
    ended=9_250,
)


def test_the_root_span_of_an_upgrade_contains_its_phases() -> None:
    root, *phases = trace_spans(_APP, _UPGRADE)
    assert (root.name, root.parent_id, root.start_ms, root.end_ms, root.failed) == ("upgrade", 0, 1_000, 9_250, True)
    assert root.attributes == {
        "headgate.namespace": "shop",
        "headgate.app": "rules",
        "headgate.upgrade.number": 7,
        "headgate.upgrade.kind": "upgrade",
        "headgate.upgrade.from_version": "1",
        "headgate.upgrade.to_version": "2",
        "headgate.upgrade.outcome": "RolledBack",
        "headgate.upgrade.reason": "StartTimeout",
    }
    assert [(span.name, span.start_ms, span.end_ms) for span in phases] == [
        ("Preflight", 1_000, 5_000),
        ("Stopping", 5_000, 7_500),
        ("Starting", 7_500, 8_500),
        ("RollingBack", 8_500, 9_000),
        ("Starting", 9_000, 9_250),
    ]


_INSTANTS = st.integers(0, 2**41)
_UPGRADES = st.builds(
    replace,
    st.just(_UPGRADE),
    number=st.integers(1, 2**31),
    started=_INSTANTS,
    ended=st.none() | _INSTANTS,
    outcome=st.sampled_from([outcome for outcome in UpgradeOutcome if outcome is not UpgradeOutcome.OPEN]),
    phases=st.lists(st.builds(PhaseTime, st.sampled_from(Phase), _INSTANTS), max_size=12).map(tuple),
)


@given(_UPGRADES)
def test_spans_of_phases_follow_each_other_within_the_root_whatever_the_clock_did(upgrade: Upgrade) -> None:
    root, *phases = trace_spans(_APP, upgrade)
    assert (root.parent_id, {span.parent_id for span in phases} - {root.span_id}) == (0, set())
    at_ms = root.start_ms
    for span in phases:
        assert at_ms <= span.start_ms <= span.end_ms
        at_ms = span.end_ms
    assert at_ms <= root.end_ms
    assert len({span.span_id for span in (root, *phases)}) == 1 + len(phases)
    for span in (root, *phases):
        assert (span.trace_id, 0 < span.trace_id < 2**128, 0 < span.span_id < 2**64) == (root.trace_id, True, True)


@given(_UPGRADES, st.text(min_size=1, max_size=40))
def test_a_stored_upgrade_keeps_its_trace_id_and_another_upgrade_has_another(upgrade: Upgrade, uid: str) -> None:
    app = AppRef("shop", "rules", uid)
    raw = {
        "metadata": {"namespace": "shop", "name": "rules", "uid": uid},
        "spec": _SPEC.model_dump(mode="json", by_alias=True),
        "status": write_status(Status(upgrade=upgrade)),
    }
    again = read_app(raw)[1].upgrade
    assert again is not None
    spans = trace_spans(app, upgrade)
    assert trace_spans(app, again) == spans
    for other in (
        trace_spans(app, replace(upgrade, number=upgrade.number + 1)),
        trace_spans(replace(app, uid=uid + "b"), again),
    ):
        assert other[0].trace_id != spans[0].trace_id
        assert not {span.span_id for span in other} & {span.span_id for span in spans}


@given(_UPGRADES)
def test_a_request_to_a_driver_names_the_span_of_the_current_phase_as_its_parent(upgrade: Upgrade) -> None:
    known = {f"00-{span.trace_id:032x}-{span.span_id:016x}-01" for span in trace_spans(_APP, upgrade)}
    going = [number for number, one in enumerate(upgrade.phases, 1) if one.phase not in RESTING]
    for number in (0, *going):
        until = replace(upgrade, phases=upgrade.phases[:number], outcome=UpgradeOutcome.OPEN, ended=None)
        assert traceparent(_APP.uid, until) in known
    assert (traceparent(_APP.uid, upgrade), traceparent(_APP.uid, None)) == ("", "")


def test_the_end_of_an_upgrade_is_detected_once() -> None:
    begun = Status(upgrade=replace(_UPGRADE, outcome=UpgradeOutcome.OPEN, ended=None))
    over = Status(upgrade=_UPGRADE)
    assert ended_upgrade(begun, over) is _UPGRADE
    assert ended_upgrade(Status(upgrade=replace(_UPGRADE, number=6)), over) is _UPGRADE
    assert [ended_upgrade(*two) for two in ((over, over), (Status(), begun), (begun, begun), (over, begun))] == [
        None
    ] * 4


def _superseded_upgrade() -> tuple[Desired, Observed, Status]:
    """Return an app in Preflight whose spec has another image by now."""
    first, second, third = (
        replace(Desired.of("shop", "rules", _APP.uid, n, _SPEC.model_copy(update={"image": f"x:{n}"})), finalized=True)
        for n in (1, 2, 3)
    )
    owner = PodRef("old", first.release.revision, "u1")
    checkpoint = Checkpoint(1, established=True)
    status = Status(phase=Phase.STABLE, stable=first.release, owner=owner, checkpoint=checkpoint, epochs=1)
    observed = Observed((PodView("old", "u1"),))
    return third, observed, reconcile(second, observed, status, 10_000).status


def test_the_end_of_an_upgrade_is_written_before_another_begins() -> None:
    desired, observed, status = _superseded_upgrade()
    over = reconcile(desired, observed, status, 12_000).status
    upgrade = ended_upgrade(status, over)
    assert upgrade is not None
    assert (upgrade.number, upgrade.outcome, upgrade.ended) == (1, UpgradeOutcome.SUPERSEDED, 12_000)
    following = reconcile(desired, observed, over, 13_000).status.upgrade
    assert following is not None
    assert (following.number, following.outcome) == (2, UpgradeOutcome.OPEN)


def test_a_request_names_the_span_of_the_phase_only_during_an_upgrade() -> None:
    desired, observed, status = _superseded_upgrade()
    command = PendingCommand("drain-1", "drain", "old", 20_000)
    status = replace(status, pending_command=command, phase=Phase.STOPPING)
    (ask,) = (one for one in reconcile(desired, observed, status, 12_000).actions if isinstance(one, SendCommand))
    assert isinstance(ask.command, Drain)
    assert ask.command.traceparent == traceparent(_APP.uid, status.upgrade)
    assert ask.command.traceparent
    status = replace(status, upgrade=None, phase=Phase.SUSPENDING)
    (ask,) = (one for one in reconcile(desired, observed, status, 12_000).actions if isinstance(one, SendCommand))
    assert isinstance(ask.command, Drain)
    assert ask.command.traceparent is None


# -- sent ----------------------------------------------------------------------------------------------------


@pytest.fixture(name="collector")
def _collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with collecting() as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        yield url


class Server(Rest):
    """An API server that accepts every status."""

    def __init__(self) -> None:
        """Open no connection."""

    def put(self, at: str, body: Json) -> Json:
        return body


def _status_writer(sending: Traces) -> Callable[[Status, Status], None]:
    """Return a function that replaces one status by another, as a reconciliation does."""
    desired = Desired.of("shop", "rules", _APP.uid, 1, _SPEC)
    cache, meta = Cache(), {"namespace": "shop", "name": "rules", "uid": _APP.uid, "resourceVersion": "1"}
    cache.put(APPS, {"metadata": meta, "spec": {}})
    api = KubernetesActuator(Server(), cache, sending)
    return lambda before, after: api.write_status(CachedApp(desired, before, "1", Observed()), after)


def _received_spans() -> list[trace_pb2.Span]:
    assert {path for path, _ in Collector.taken} <= {"/v1/traces"}
    return Collector.spans()


def _to_proto(span: Span) -> tuple[str, bytes, bytes, bytes, int, int]:
    parent = span.parent_id.to_bytes(8) if span.parent_id else b""
    ids = (span.trace_id.to_bytes(16), span.span_id.to_bytes(8), parent)
    return (span.name, *ids, span.start_ms * 1_000_000, span.end_ms * 1_000_000)


@pytest.mark.usefixtures("collector")
def test_an_upgrade_is_sent_as_one_trace_once_its_end_is_written() -> None:
    counters = Counters()
    sending = OtlpTraces(counters)
    write = _status_writer(sending)
    begun = Status(upgrade=replace(_UPGRADE, phases=_UPGRADE.phases[:1], outcome=UpgradeOutcome.OPEN, ended=None))
    going = Status(upgrade=replace(_UPGRADE, outcome=UpgradeOutcome.OPEN, ended=None))
    over = Status(phase=Phase.ROLLED_BACK, upgrade=_UPGRADE)
    for before, after in ((Status(), begun), (begun, going), (going, over), (over, replace(over, restarts=1))):
        write(before, after)
    sending.close()
    sent = [
        (s.name, s.trace_id, s.span_id, s.parent_span_id, s.start_time_unix_nano, s.end_time_unix_nano)
        for s in _received_spans()
    ]
    assert sent == [_to_proto(span) for span in trace_spans(_APP, _UPGRADE)]
    assert len(Collector.taken) == 1
    root = _received_spans()[0]
    attributes = {one.key: one.value.string_value or one.value.int_value for one in root.attributes}
    assert attributes == dict(trace_spans(_APP, _UPGRADE)[0].attributes)
    assert root.status.code == trace_pb2.Status.STATUS_CODE_ERROR
    assert counters.read() == {("traces", "sent"): 1}


@pytest.mark.slow
def test_an_unreachable_endpoint_blocks_nothing_and_spans_beyond_the_limit_are_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1) as silent:  # takes connections and says nothing
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        counters = Counters()
        sending = OtlpTraces(counters, queue_size=2)
        began = time.monotonic()
        for number in range(50):
            sending.upgrade_ended(_APP, replace(_UPGRADE, number=number))
        # Each call that waited would wait for the second of the timeout, and closing for all of them.
        assert time.monotonic() - began < 25
        began = time.monotonic()
        sending.close()
    took = counters.read()
    assert set(took) == {("traces", "dropped")}
    assert 47 <= took["traces", "dropped"] <= 50
    assert time.monotonic() - began < 30


@pytest.mark.slow
def test_without_an_endpoint_no_trace_is_sent_and_no_exporter_is_imported() -> None:
    assert traces({}, Counters()) is NO_TRACES
    assert traces({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, Counters()) is NO_TRACES
    code = (
        "import sys; import headgate_operator.__main__; from headgate_operator.runtime.otlp_traces import traces; "
        "traces({}, None); print([m for m in sys.modules if m.split('.')[0] in ('opentelemetry', 'requests')])"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "opentelemetry" not in completed.stdout


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_either_of_the_standard_variables_sets_the_endpoint(
    name: str, collector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    value = collector if name == "OTEL_EXPORTER_OTLP_ENDPOINT" else f"{collector}/v1/traces"
    monkeypatch.setenv(name, value)
    sending = traces({name: value}, Counters())
    sending.upgrade_ended(_APP, _UPGRADE)
    sending.close()
    assert len(_received_spans()) == 6
