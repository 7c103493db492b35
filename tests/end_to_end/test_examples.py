"""The examples print the output that is stored beside them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from types import ModuleType

import orjson
import polars as pl
import pytest

from conftest import NewTopic
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.spark.session import SparkSettings
from streamcore.topology.simulation import Simulation, SimulationResult
from streamcore.topology.text_tables import event_table
from streamcore.wire.lane_rows import LaneRows
from streamcore.wire.lanes import DEAD_LETTERS
from tests.harness.apps.orders import send_raw
from tests.harness.apps.scripted_cuts import Script, Step, run

FOLDER = Path(__file__).parents[2] / "examples"
CLOCK_MS = 1_772_496_000_000  # 2026-03-03: events far ahead of the clock would be dead letters
PROGRAMS = sorted(FOLDER.glob("[0-9]*.py"))


def example(number: int) -> ModuleType:
    """Load the example anew, as a module that no other process can import: its definitions are pickled with the app."""
    (path,) = FOLDER.glob(f"{number:02}_*.py")
    spec = importlib.util.spec_from_file_location(f"example_{number:02}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(result: SimulationResult, lane: str, *columns: str) -> list[tuple[object, ...]]:
    return result[lane].select(*columns).rows()


def hours(result: SimulationResult, lane: str, *columns: str) -> list[tuple[object, ...]]:
    """Return rows with the hour and minute in the first column."""
    return rows(result, lane, *(pl.col(c).dt.strftime("%H:%M") if c == columns[0] else c for c in columns))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_an_example_prints_its_stored_output(program: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    completed = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, env=environment, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout == program.with_suffix(".txt").read_text()


def test_the_table_of_the_readme_lists_every_example() -> None:
    readme = (FOLDER / "README.md").read_text()
    assert [path.name for path in PROGRAMS if f"({path.name})" not in readme] == []
    assert len(PROGRAMS) == 12


def test_01_money_is_exact_and_an_invalid_row_is_a_dead_letter_that_affects_no_other() -> None:
    result = example(1).results()
    amounts = [("mug", Decimal("29.70")), ("sticker", Decimal("0.30")), ("chair", Decimal("129.00"))]
    assert rows(result, "amounts", "product", "amount") == amounts
    assert rows(result, "large", "product") == [("chair",)]
    assert [orjson.loads(record.value)["order"] for record in result.dead] == ["o2"]


def test_02_disorder_within_the_bound_changes_nothing_and_later_events_are_in_the_late_lane() -> None:
    result = example(2).results()
    assert hours(result, "revenue", "window_start", "orders", "revenue") == [
        ("10:00", 3, Decimal("26.75")),
        ("10:01", 2, Decimal("12.00")),
    ]
    assert rows(result, "late", "order", "lateness_ms") == [("f", 12_000)]


def test_03_every_request_is_in_two_windows() -> None:
    latency = example(3).results()["latency"]
    assert latency["requests"].to_list() == [3, 5, 3, 2, 1]
    assert latency["requests"].sum() == 2 * len(example(3).ROWS)
    assert latency["customers"].to_list() == [2, 3, 2, 2, 1]
    assert latency["slowest"].to_list()[1] == [{"path": "/pay", "took_ms": 900}, {"path": "/search", "took_ms": 310}]


@pytest.mark.slow
def test_04_only_with_retractions_the_panes_add_up_when_sessions_merge() -> None:
    result = example(4).results()
    assert result["net"]["net"].sum() == 5
    assert result["accumulating"]["clicks"].sum() == 11
    assert result["discarding"]["clicks"].to_list() == [2, 0, 2, 1]
    last = result["retracting"].tail(3).select("pane", "is_retraction", "clicks").rows()
    assert last == [(3, True, 2), (1, True, 2), (0, False, 5)]


@pytest.mark.parametrize("shards", [1, 3])
def test_05_the_best_three_of_each_hour_do_not_depend_on_the_number_of_shards(shards: int) -> None:
    assert hours(example(5).results(shards), "top", "window_start", "rank", "product", "revenue") == [
        ("10:00", 1, "chair", Decimal("129.00")),
        ("10:00", 2, "mug", Decimal("49.50")),
        ("10:00", 3, "lamp", Decimal("45.00")),
        ("11:00", 1, "mug", Decimal("9.90")),
        ("11:00", 2, "sticker", Decimal("1.00")),
    ]


@pytest.mark.parametrize("cut_rows", [1, 2, 6])
def test_06_alarms_and_quiet_cards_do_not_depend_on_how_the_input_is_cut(cut_rows: int) -> None:
    result = example(6).results(cut_rows)
    assert hours(result, "alarms", "at", "card", "spent") == [("10:06", "c1", Decimal("550.00"))]
    assert rows(result, "quiet", "card", "payments") == [("c2", 1), ("c1", 5)]


def test_07_payments_meet_the_limits_of_their_cut_and_a_bad_limit_changes_nothing() -> None:
    result = example(7).results()
    assert rows(result, "rejected", "payment", "above") == [("p2", Decimal("50.00")), ("p3", Decimal("50.00"))]
    assert [(letter.key, letter.value, dict(letter.headers)["reason_code"]) for letter in result.dead] == [
        (b"FR", b"lots", b"failed_control")
    ]


def test_08_unpaid_orders_are_returned_and_prices_are_those_at_the_time_of_the_order() -> None:
    result = example(8).results()
    assert sorted(rows(result, "paid", "order", "paid")) == [("o1", Decimal("19.80")), ("o2", None), ("o3", None)]
    amounts = [("o1", Decimal("19.80")), ("o2", Decimal("21.80")), ("o3", None)]
    assert sorted(rows(result, "priced", "order", "amount")) == amounts


def test_09_every_event_is_returned_once_with_its_segment_or_a_default() -> None:
    result = example(9).results()
    segments = [("e1", "gold"), ("e2", None), ("e3", "unknown"), ("e4", "new")]
    assert sorted(rows(result, "orders", "event_id", "segment")) == segments
    assert rows(result, "duplicates", "event_id") == [("e1",)]
    assert rows(result, "unanswered", "event_id", "attempts") == [("e3", 2)]


@pytest.mark.slow
@pytest.mark.parametrize("restart_before", [0, 1, 2])
def test_10_a_restart_changes_nothing(restart_before: int) -> None:
    restarted, whole = example(10).results(restart_before), example(10).results()
    assert restarted.text() == whole.text()
    assert hours(whole, "revenue", "window_start", "country", "orders", "revenue") == [
        ("10:00", "DE", 1, Decimal("1500.00")),
        ("10:00", "FR", 2, Decimal("20.10")),
        ("11:00", "FR", 1, Decimal("7.00")),
    ]


@pytest.mark.parametrize(("cut_rows", "shards"), [(1, 3), (2, 1), (6, 2)])
def test_11_orders_and_payments_meet_in_one_state_for_any_cuts_and_shards(cut_rows: int, shards: int) -> None:
    result = example(11).results(cut_rows, shards)
    assert rows(result, "paid", "order", "payments") == [("o1", [Decimal("20.00")])]
    assert sorted(rows(result, "unpaid", "order", "missing")) == [("o2", Decimal("7.50")), ("o4", Decimal("9.00"))]
    assert rows(result, "unknown", "order", "paid") == [("o3", Decimal("7.00"))]


def steps(kafka: KafkaSettings, topic: str, cuts: Sequence[pl.DataFrame]) -> list[Step]:
    """Return the rows as JSON events in a topic, and the cuts that read them."""
    found, end = [], 0
    for number, cut in enumerate(cuts):
        values = LaneRows("", (), cut).values()
        end = send_raw(kafka, topic, [(None, value) for value in values])[-1] + 1
        found.append(Step({(topic, 0): end}, CLOCK_MS + number))
    return found


def in_process(module: ModuleType, cuts: Sequence[pl.DataFrame]) -> SimulationResult:
    simulation, result = Simulation(module.topology), SimulationResult()
    for cut in cuts:
        result.add(simulation.cut({"orders": cut}))
    return result


@pytest.mark.spark
def test_output_of_examples_on_kafka_and_spark_equals_output_in_process(
    tmp_path: Path, kafka: KafkaSettings, spark_jars: Path, new_topic: NewTopic
) -> None:
    best, revenue = example(5), example(10)
    cuts = {
        best: [event_table(best.ORDERS, best.ROWS[:4]), event_table(best.ORDERS, best.ROWS[4:])],
        revenue: [event_table(revenue.ORDERS, rows) for rows in revenue.CUTS],
    }
    scripts = {}
    for module, its_cuts in cuts.items():
        topic = new_topic("orders")
        app = module.topology.app(topics={"orders": topic}, shards=2)
        checkpoint = tmp_path / f"checkpoint-{app.name}"
        scripts[module] = Script(app, kafka, checkpoint, SparkSettings(spark_jars), steps(kafka, topic, its_cuts))
    run(tmp_path, [*scripts.values()])
    for module, script in scripts.items():
        wanted = in_process(module, cuts[module])
        assert wanted.lanes
        for lane, topic in script.app.lanes.items():
            written = sorted(record.value or b"" for record in read_topic(kafka, topic))
            dead = [record.value or b"" for record in wanted.dead]
            assert written == sorted(dead if lane == DEAD_LETTERS else LaneRows(lane, (), wanted[lane]).values())
