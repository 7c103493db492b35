"""The parts of `headgate up`, each by itself: names, generator, child process, signals."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.console.messages import silent
from headgate.console.timeline import Timeline
from headgate.demo import workspace
from headgate.demo.app_process import AppEndedError, AppProcess
from headgate.demo.generator import PRIMER, Generator, GeneratorSettings, primers
from headgate.demo.run import Signals
from headgate.demo.shop.feed import shop_feed
from headgate.demo.shop.settings import EVENTS_PER_BLOCK, RecordFate, ShopSettings
from headgate.demo.shop.stream import records
from headgate.demo.workspace import AppNames
from headgate.errors import InputError
from streamcore.kafka.control_topic import control_topic
from streamcore.kafka.readers import end_offsets
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, delete_topics, describe, ensure_topics
from tests.harness.apps.cut_reports import cut_report
from tests.harness.run.shared_servers import unique_name

LIKE = AppNames("shop", lanes=("alerts", "late"))
SHOP = ShopSettings(seed=11, start_ms=1_700_000_000_000)


# --- workspace ----------------------------------------------------------------------------------------------------


@pytest.mark.kafka
def test_two_workspaces_never_share_a_topic_and_a_fresh_one_uses_no_old_topics(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    like = replace(LIKE, app=unique_name("shop", 1))  # no other test creates topics of this name
    first, second = (workspace.create(_folder(tmp_path, name), "b1", kafka, 1, silent, like) for name in "ab")
    assert not set(first.names.all) & set(second.names.all)
    ensure_topics(kafka, [control_topic(first.names.control)])
    assert workspace.load(first.folder, "b1", like) == first
    assert workspace.has_topics(first, kafka)
    first.checkpoint.mkdir()
    fresh = workspace.create(first.folder, "b1", kafka, 1, silent, like)
    assert not first.checkpoint.exists()
    assert workspace.load(first.folder, "b1", like) == fresh
    assert not workspace.has_topics(fresh, kafka), "its control topic is not there yet"
    delete_topics(kafka, [*fresh.names.all, *second.names.all])
    assert describe(kafka, [first.names.control, fresh.names.events]) == {}


def _folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name


def test_a_workspace_belongs_to_its_broker(tmp_path: Path) -> None:
    text = '{"app": "shop", "shop": {"seed": 1, "start_ms": 5}, "broker": "one"}'
    (tmp_path / "workspace.json").write_text(text, encoding="utf-8")
    assert workspace.load(tmp_path, "another", LIKE) is None
    found = workspace.load(tmp_path, "one", LIKE)
    assert found is not None
    assert (found.names.events, found.shop) == ("shop", ShopSettings(1, 5))


def test_a_damaged_workspace_is_rejected_with_advice(tmp_path: Path) -> None:
    (tmp_path / "workspace.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="--fresh"):
        workspace.load(tmp_path, "one", LIKE)


def test_one_process_at_a_time_uses_a_data_folder(tmp_path: Path) -> None:
    with (
        workspace.lock_folder(tmp_path),
        pytest.raises(InputError, match=r"in use by headgate up, process \d+"),
        workspace.lock_folder(tmp_path),
    ):
        pass
    with workspace.lock_folder(tmp_path):
        assert (tmp_path / "up.lock").exists()


# --- generator ----------------------------------------------------------------------------------------------------


@given(start=st.integers(0, 5_000), partitions=st.integers(1, 4))
def test_primers_are_short_stay_within_a_block_and_end_when_every_partition_has_events(
    start: int, partitions: int
) -> None:
    stops = list(primers(shop_feed("shop", SHOP), start, partitions))
    covered = set[int]()
    for begin, stop in zip([start, *stops], stops, strict=False):
        assert 0 < stop - begin <= PRIMER
        assert begin // EVENTS_PER_BLOCK == (stop - 1) // EVENTS_PER_BLOCK
        part = list(records(SHOP, begin, stop))
        times = [r.event_ms for r in part if r.fate is RecordFate.EVENT]
        assert not times or max(times) - min(times) < 15_000
        covered |= {r.partition(partitions) for r in part if r.fate is RecordFate.EVENT}
    assert covered == set(range(partitions))


@pytest.mark.kafka
def test_a_run_sends_exactly_the_requested_events_and_the_next_run_continues(kafka: KafkaSettings) -> None:
    topic = "generator-counts"
    ensure_topics(kafka, [TopicSpec(topic, 4)])
    for total in (1_234, 2_468):
        generator = Generator(kafka, shop_feed(topic, SHOP), GeneratorSettings(1_234), lambda: 10**9)
        generator.start()
        while not generator.done:
            generator.raise_if_ended()
            threading.Event().wait(0.05)
        assert generator.next_index == total
        assert sum(end_offsets(kafka, [topic]).values()) == total


@pytest.mark.kafka
def test_the_producer_waits_for_the_app_after_a_primer_and_can_be_stopped_there(kafka: KafkaSettings) -> None:
    topic = "generator-waits"
    ensure_topics(kafka, [TopicSpec(topic, 4)])
    generator = Generator(kafka, shop_feed(topic, SHOP), GeneratorSettings(5_000), lambda: 0)
    generator.start()
    while generator.next_index == 0:
        generator.raise_if_ended()
        threading.Event().wait(0.05)
    assert generator.stop(30)
    assert sum(end_offsets(kafka, [topic]).values()) == PRIMER
    assert generator.waiting_s(0) > 0
    assert generator.waiting_s(PRIMER) == 0
    again = Generator(kafka, shop_feed(topic, SHOP), GeneratorSettings(700), lambda: 0)
    again.start()
    while not again.done:
        again.raise_if_ended()
        threading.Event().wait(0.05)
    assert sum(end_offsets(kafka, [topic]).values()) == PRIMER + 700, "only a new stream waits"


# --- the app's process --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_app_that_ends_by_itself_is_reported_with_its_reason_and_log(tmp_path: Path) -> None:
    settings = tmp_path / "rules.json"
    settings.write_text('{"app": "x"}', encoding="utf-8")
    app = AppProcess("headgate_rules", settings, tmp_path / "rules.log", ["shop"])
    app.start()
    try:
        with pytest.raises(AppEndedError) as ended:
            _check_until_error(app)
    finally:
        app.kill()
        app.close()
    assert "exit code 2" in str(ended.value)
    assert "checkpoint: Field required" in str(ended.value)
    assert str(tmp_path / "rules.log") in str(ended.value)


def _check_until_error(app: AppProcess) -> None:
    for _ in range(600):
        app.raise_if_ended()
        threading.Event().wait(0.1)


def test_the_reports_of_an_app_say_what_it_waits_for_what_it_reads_and_how_far_it_is_behind(tmp_path: Path) -> None:
    report = replace(cut_report(), offsets={"shop": {"0": 40, "1": 2}, "shop.control": {"0": 7}}, reasons={"late": 1})
    cut = json.dumps({"cut": asdict(report), "lag": {"rows": 3, "ms": 1_500, "control_records": 0}})
    app = AppProcess("headgate_rules", tmp_path / "rules.json", tmp_path / "rules.log", ["shop"])
    pipe = tmp_path / "go"
    os.mkfifo(pipe)
    script = 'echo "$0"; read -r line <"$2"; echo "$1"'
    app.command = ("/bin/sh", "-c", script, '{"waiting": "Kafka"}', cut, str(pipe))
    app.start()
    while not app.metrics.waits_for:
        threading.Event().wait(0.01)
    assert (app.metrics.waits_for, app.metrics.cuts) == ("Kafka", 0)
    pipe.write_text("go\n")
    while not app.has_finished:
        threading.Event().wait(0.01)
    app.close()
    assert (app.metrics.waits_for, app.metrics.cuts, app.metrics.lag_s) == ("", 1, 1.5)
    assert app.metrics.inputs == {"shop": 42}


@pytest.mark.slow
def test_an_app_that_does_not_drain_is_killed(tmp_path: Path) -> None:
    app = AppProcess("headgate_rules", tmp_path / "rules.json", tmp_path / "rules.log", ["shop"])
    app.command = ("/bin/sh", "-c", "trap '' TERM; echo ready >&2; while :; do sleep 0.1; done")
    app.start()
    while "ready" not in app.tail():
        threading.Event().wait(0.05)
    assert not app.drain(0.3, threading.Event())
    hurry = threading.Event()
    hurry.set()
    assert not app.drain(60, hurry), "a second Ctrl-C does not wait"
    app.kill()
    app.close()
    with pytest.raises(AppEndedError, match="exit code -9"):
        app.raise_if_ended()


# --- signals and times --------------------------------------------------------------------------------------------


def test_the_first_signal_requests_a_stop_and_the_second_one_an_immediate_end() -> None:
    signals = Signals(silent, setting_up=False)
    with signals.handling():
        signal.raise_signal(signal.SIGINT)
        assert (signals.stop.is_set(), signals.hurry.is_set()) == (True, False)
        signal.raise_signal(signal.SIGTERM)
        assert signals.hurry.is_set()


def test_a_signal_during_set_up_interrupts_at_once() -> None:
    signals = Signals(silent)
    with signals.handling(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    assert signals.stop.is_set()


def test_a_timeline_prints_each_mark_once() -> None:
    messages: list[str] = []
    timeline = Timeline(messages.append)
    timeline.mark("ready")
    timeline.mark("ready")
    assert len(messages) == 1
    assert messages[0].endswith("s  ready")
