"""Driver and operator parse each other's messages, and no status of a driver stops the operator."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from headgate_operator.pods.settings import settings
from headgate_operator.resources.release import release_for
from headgate_operator.resources.spec import StreamAppSpec
from headgate_operator.resources.status import Phase, PhaseTime, Upgrade, UpgradeKind
from headgate_operator.traces import AppRef, trace_spans, traceparent
from headgate_rules.settings import RulesSettings
from streamcore.checkpoint.epochs import EpochProgress, NewerEpochExists
from streamcore.control import commands
from streamcore.control import status as driver
from streamcore.control.channel import FileChannel
from streamcore.control.reporter import StatusReporter
from streamcore.errors import ConfigError, Retryable, StreamError
from streamcore.leases.acquire import LeaseHeld

APP = StreamAppSpec.model_validate(
    {"service": "rules", "image": "headgate:1", "config": {}, "checkpoint": {"root": "/var/lib/headgate"}}
)
NAMES = st.text("abc-09", min_size=1, max_size=63)
SAVEPOINT = NAMES | st.none()
COMMANDS = {
    "savepoint": st.builds(commands.TakeSavepoint, NAMES, NAMES),
    "drain": st.builds(commands.Drain, NAMES, SAVEPOINT),
    "verify": st.builds(commands.Verify, NAMES, NAMES),
    "configure": st.builds(
        commands.Configure,
        NAMES,
        st.dictionaries(st.text(max_size=9), st.integers() | st.text(max_size=9) | st.lists(st.booleans())),
    ),
    "promote": st.builds(commands.Promote, NAMES, st.integers(1, 2**31), SAVEPOINT, st.booleans(), st.booleans()),
}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("kind", COMMANDS)
def test_every_command_is_parsed_as_it_was_formatted(kind: str) -> None:
    @given(COMMANDS[kind])
    def check(command: commands.ValidCommand) -> None:
        text = commands.format_command(command)
        assert json.loads(text)["command"] == kind
        assert commands.parse_command(text) == command
        assert commands.command_id(text) == command.id

    check()


def test_commands_have_the_documented_fields() -> None:
    assert json.loads(commands.format_command(commands.Drain("a"))) == {
        "id": "a",
        "command": "drain",
        "savepoint": None,
    }
    taken = json.loads(commands.format_command(commands.TakeSavepoint("a", "n")))
    assert taken == {"id": "a", "command": "savepoint", "name": "n"}
    promote = json.loads(commands.format_command(commands.Promote("a", 3, "n")))
    fields = {"epoch": 3, "restore": "n", "allow_empty": False, "discard_newer": False}
    assert promote == {"id": "a", "command": "promote", **fields}


TRACED = ("savepoint", "drain", "promote")


@pytest.mark.parametrize("kind", TRACED)
def test_the_span_of_a_command_is_parsed_and_changes_nothing_else(kind: str) -> None:
    upgrade = Upgrade(3, UpgradeKind.UPGRADE, release_for(APP, 1), 1_000, phases=(PhaseTime(Phase.STOPPING, 2_000),))
    parent = traceparent("0a1b2c3d", upgrade)
    span = trace_spans(AppRef("shop", "rules", "0a1b2c3d"), upgrade)[1]

    @given(COMMANDS[kind])
    def check(command: commands.TakeSavepoint | commands.Drain | commands.Promote) -> None:
        traced = replace(command, traceparent=parent)
        text = commands.format_command(traced)
        assert commands.parse_command(text) == traced
        assert json.loads(text) == json.loads(commands.format_command(command)) | {"traceparent": parent}

    check()
    context = get_current_span(TraceContextTextMapPropagator().extract({"traceparent": parent})).get_span_context()
    assert (context.trace_id, context.span_id, context.trace_flags.sampled) == (span.trace_id, span.span_id, True)


def test_the_error_about_an_unknown_command_lists_the_known_ones() -> None:
    unknown = commands.parse_command('{"id": "1", "command": "dance"}')
    assert isinstance(unknown, commands.InvalidCommand)
    assert unknown.message.startswith(commands.UNKNOWN_COMMAND)
    assert set(unknown.message.rpartition("known commands are ")[2].split(", ")) == COMMANDS.keys()


TEXTS = st.text(max_size=200)
BATCHES = st.integers(-1, 2**31)
SAVEPOINTS = st.builds(driver.SavepointInfo, NAMES, BATCHES, st.integers(1, 99), TEXTS, st.integers(0, 2**40))
RESULTS = st.builds(
    driver.CommandResult,
    st.booleans(),
    TEXTS,
    st.none() | SAVEPOINTS,
    st.none() | st.builds(driver.NewerEpochInfo, st.integers(1, 99), BATCHES),
    st.booleans(),
)
STATUSES = st.builds(
    driver.DriverStatus,
    phase=st.sampled_from([p for p in driver.DriverPhase if p is not driver.DriverPhase.UNKNOWN]),
    version=NAMES,
    epoch=st.integers(0, 99),
    batch=BATCHES,
    committed=st.integers(0, 99),
    lag_rows=st.integers(0, 2**40),
    lag_s=st.integers(0, 9_999).map(float),
    watermark_ms=st.none() | st.integers(0, 2**41),
    at_ms=st.integers(0, 2**41),
    compatibility=st.none() | st.builds(driver.CompatibilityInfo, NAMES, st.lists(TEXTS, max_size=3).map(tuple)),
    results=st.dictionaries(NAMES, RESULTS, max_size=2),
    message=TEXTS,
)


@given(STATUSES)
def test_every_status_is_parsed_as_it_was_formatted(status: driver.DriverStatus) -> None:
    parsed = driver.DriverStatus.from_json(status.to_json())
    assert parsed is not None
    assert replace(parsed, results={}) == replace(status, results={})
    assert parsed.results.keys() <= status.results.keys()
    for name, result in parsed.results.items():
        assert result == status.results[name]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
_FIELDS = st.sampled_from(
    ["phase", "epoch", "batch", "committed", "lag_s", "compatibility", "results", "at_ms", "message"]
)


@given(st.dictionaries(_FIELDS, _JSON) | _JSON)
def test_any_json_is_a_status_or_none_and_never_an_error(document: object) -> None:
    driver.DriverStatus.from_json(json.dumps(document))
    commands.command_id(json.dumps(document))


def test_an_annotation_that_is_not_json_gives_no_status() -> None:
    assert driver.DriverStatus.from_json("{") is None
    assert commands.command_id("[") == ""


@pytest.mark.parametrize(
    ("why", "retry", "newer"),
    [
        (LeaseHeld("in use by process 7 on far"), True, None),
        (Retryable("the storage is away"), True, None),
        (NewerEpochExists("epoch 2 is over", EpochProgress(3, 4)), False, (3, 4)),
        (ConfigError("a checkpoint of another app"), False, None),
    ],
)
def test_the_operator_parses_the_reason_of_a_rejection(
    why: StreamError, retry: bool, newer: tuple[int, int] | None, tmp_path: Path
) -> None:
    reporter = StatusReporter(FileChannel(tmp_path), lambda _: None)
    reporter.reject("1", why)
    heard = driver.DriverStatus.from_json(reporter.server.status.to_json())
    assert heard is not None
    answer = heard.results["1"]
    assert (answer.ok, answer.retryable) == (False, retry)
    assert answer.newer_epoch == (None if newer is None else driver.NewerEpochInfo(*newer))
    assert str(why) in answer.message


def test_requested_settings_differ_from_those_of_the_driver_only_where_the_spec_changed(
    tmp_path: Path,
) -> None:
    """The operator sends the settings that a new pod would read, so paths do not differ."""
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
        text = commands.format_command(commands.Configure("i", settings("shop", spec)))
        request = commands.parse_command(text)
        assert isinstance(request, commands.Configure)
        return RulesSettings.model_validate(request.settings)

    assert read() == read()
    assert read(events_per_cut=7).fixed_differences(read()) == ()
    assert read(events_per_cut=7) != read()
    assert read(driver_memory="2g").fixed_differences(read()) == ("driver_memory",)
    assert read(telemetry={"logs": "plain"}).fixed_differences(read()) == ("telemetry",)
