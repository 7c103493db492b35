"""What the operator writes the drivers read, and the other way round: two modules that may not know each other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from headgate_operator import protocol
from headgate_operator.pods.settings import settings
from headgate_operator.reconcile.upgrading import UNKNOWN_REQUEST
from headgate_operator.resources.release import release_of
from headgate_operator.resources.spec import StreamAppSpec
from headgate_operator.resources.status import Phase, PhaseTime, Upgrade, UpgradeKind
from headgate_operator.traces import App, spans_of, traceparent
from headgate_rules.settings import RulesSettings
from streamcore.checkpoint.epochs import NewerExists, Reached
from streamcore.checkpoint.lease import LeaseHeld
from streamcore.errors import ConfigError, Retryable, StreamError
from streamcore.service import report as said
from streamcore.service import requests as asked
from streamcore.service.mailbox import FileMailbox
from streamcore.service.voice import Voice

APP = StreamAppSpec.model_validate(
    {"service": "rules", "image": "headgate:1", "config": {}, "checkpoint": {"root": "/var/lib/headgate"}}
)
NAMES = st.text("abc-09", min_size=1, max_size=63)
#: By kind: what the operator asks, and what the driver must understand.
PAIRS = {
    "savepoint": st.builds(
        lambda name: (protocol.Request("i", "savepoint", savepoint=name), asked.TakeSavepoint("i", name)), NAMES
    ),
    "drain": st.builds(
        lambda name: (protocol.Request("i", "drain", savepoint=name), asked.Drain("i", name or None)),
        NAMES | st.just(""),
    ),
    "verify": st.builds(lambda name: (protocol.Request("i", "verify", savepoint=name), asked.Verify("i", name)), NAMES),
    "configure": st.builds(
        lambda document: (protocol.Request("i", "configure", settings=document), asked.Configure("i", document)),
        st.dictionaries(
            st.text(max_size=9), st.integers(-(2**63), 2**63 - 1) | st.text(max_size=9) | st.lists(st.booleans())
        ),
    ),
    "go": st.builds(
        lambda epoch, restore, begin, accept: (
            protocol.Request("i", "go", epoch=epoch, restore=restore, begin=begin, accept_newer=accept),
            asked.Go("i", epoch, restore or None, begin, accept),
        ),
        st.integers(1, 2**31),
        NAMES | st.just(""),
        st.booleans(),
        st.booleans(),
    ),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_every_request_is_understood(kind: str) -> None:
    @given(PAIRS[kind])
    def understood(pair: tuple[protocol.Request, asked.Request]) -> None:
        request, meaning = pair
        assert asked.parse_request(request.text()) == meaning
        assert protocol.request_id(request.text()) == meaning.id

    understood()


#: What the driver makes a span of. It reads the others as if nothing had been said.
TRACED = ("savepoint", "drain", "go")


@pytest.mark.parametrize("kind", PAIRS)
def test_the_span_that_a_request_belongs_to_is_understood_and_changes_nothing_else(kind: str) -> None:
    upgrade = Upgrade(3, UpgradeKind.UPGRADE, release_of(APP, 1), 1_000, phases=(PhaseTime(Phase.STOPPING, 2_000),))
    parent = traceparent("0a1b2c3d", upgrade)
    span = spans_of(App("shop", "rules", "0a1b2c3d"), upgrade)[1]

    @given(PAIRS[kind])
    def understood(pair: tuple[protocol.Request, asked.Request]) -> None:
        request, meaning = pair
        said = {"traceparent": parent} if kind in TRACED else {}
        text = replace(request, traceparent=parent).text()
        assert asked.parse_request(text) == replace(meaning, **said)  # type: ignore[arg-type]
        assert json.loads(text) == json.loads(request.text()) | {"traceparent": parent}

    understood()
    heard = get_current_span(TraceContextTextMapPropagator().extract({"traceparent": parent})).get_span_context()
    assert (heard.trace_id, heard.span_id, heard.trace_flags.sampled) == (span.trace_id, span.span_id, True)


def test_there_is_no_kind_that_only_one_side_knows() -> None:
    unknown = asked.parse_request('{"id": "1", "do": "dance"}')
    assert isinstance(unknown, asked.Unreadable)
    assert unknown.why.startswith(UNKNOWN_REQUEST)
    known = unknown.why.rpartition("known are ")[2].split(", ")
    assert set(known) == PAIRS.keys() == vars(protocol)["_ENTRIES"].keys()


TEXTS = st.text(max_size=200)
BATCHES = st.integers(-1, 2**31)
SAVEPOINTS = st.builds(said.SavepointSaid, NAMES, BATCHES, st.integers(1, 99), TEXTS, st.integers(0, 2**40))
ANSWERS = st.builds(
    said.Answer,
    st.booleans(),
    TEXTS,
    st.none() | SAVEPOINTS,
    st.none() | st.builds(said.NewerSaid, st.integers(1, 99), BATCHES),
    st.booleans(),
)
REPORTS = st.builds(
    said.Report,
    phase=st.sampled_from(said.Phase),
    version=NAMES,
    epoch=st.integers(0, 99),
    batch=BATCHES,
    committed=st.integers(0, 99),
    lag_rows=st.integers(0, 2**40),
    lag_s=st.integers(0, 9_999).map(float),
    watermark_ms=st.none() | st.integers(0, 2**41),
    at_ms=st.integers(0, 2**41),
    plan=st.none() | st.builds(said.PlanSaid, NAMES, st.lists(TEXTS, max_size=3).map(tuple)),
    answers=st.dictionaries(NAMES, ANSWERS, max_size=2),
    message=TEXTS,
)


@given(REPORTS)
def test_every_report_is_understood(report: said.Report) -> None:
    text = report.to_json()
    understood = protocol.parse_report(text)
    assert understood is not None
    kept = json.loads(text)["answers"]
    assert understood.answers.keys() == kept.keys()
    for name in ("phase", "version", "epoch", "batch", "committed", "lag_rows", "lag_s", "at_ms", "message"):
        assert getattr(understood, name) == getattr(report, name), name
    assert (understood.plan is None) == (report.plan is None)
    if report.plan is not None and understood.plan is not None:
        assert (understood.plan.verdict, understood.plan.reasons) == (report.plan.verdict, report.plan.reasons)
    for name, answer in understood.answers.items():
        _is_the_same(answer, report.answers[name])


def _is_the_same(heard: protocol.Answer, spoken: said.Answer) -> None:
    assert (heard.ok, heard.message, heard.retry) == (spoken.ok, spoken.message, spoken.retry)
    assert heard.newer == (None if spoken.newer is None else (spoken.newer.epoch, spoken.newer.batch))
    assert (heard.savepoint is None) == (spoken.savepoint is None)
    if heard.savepoint is not None and spoken.savepoint is not None:
        one, other = heard.savepoint, spoken.savepoint
        assert (one.name, one.batch, one.epoch, one.digest) == (other.name, other.batch, other.epoch, other.digest)
        assert one.size_bytes == other.bytes


@pytest.mark.parametrize(
    ("why", "retry", "newer"),
    [
        (LeaseHeld("in use by process 7 on far"), True, None),
        (Retryable("the storage is away"), True, None),
        (NewerExists("epoch 2 is over", Reached(3, 4)), False, (3, 4)),
        (ConfigError("a checkpoint of another app"), False, None),
    ],
)
def test_why_a_driver_says_no_is_understood(
    why: StreamError, retry: bool, newer: tuple[int, int] | None, tmp_path: Path
) -> None:
    voice = Voice(FileMailbox(tmp_path), lambda _: None)
    voice.refuse("1", why)
    heard = protocol.parse_report(voice.attending.report.to_json())
    assert heard is not None
    answer = heard.answers["1"]
    assert (answer.ok, answer.retry, answer.newer) == (False, retry, newer)
    assert str(why) in answer.message


def test_the_settings_that_a_driver_is_asked_to_take_differ_from_its_own_in_what_was_changed_only(
    tmp_path: Path,
) -> None:
    """The operator sends what a new pod would read, so where things are is no change."""
    streams = [{"schema_file": str(tmp_path / "orders.yaml"), "topic": "orders"}]
    config = {"kafka": {"bootstrap": "kafka:9092"}, "streams": streams}

    def read(**changed: object) -> RulesSettings:
        spec = StreamAppSpec.model_validate(
            {
                "service": "rules",
                "image": "headgate:1",
                "checkpoint": {"root": "/var/lib/headgate"},
                "config": {**config, **changed},
            }
        )
        text = protocol.Request("i", "configure", settings=settings("shop", spec)).text()
        request = asked.parse_request(text)
        assert isinstance(request, asked.Configure)
        return RulesSettings.model_validate(request.settings)

    assert read() == read()
    assert read(events_per_cut=7).fixed(read()) == ()
    assert read(events_per_cut=7) != read()
    assert read(driver_memory="2g").fixed(read()) == ("driver_memory",)
    assert read(telemetry={"logs": "plain"}).fixed(read()) == ("telemetry",)
