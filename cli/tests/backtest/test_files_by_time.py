"""A folder whose files cover the same time is read by event time, so a back-test finds what it finds in one file."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.backtest.file_order import TimeSpan, is_out_of_order, merge_by_time
from headgate.main import run
from streamcore.schema import EVENT_MS, OFFSET
from tests.harness.oracles.sequences import Event, Row, Wanted, find

START = 1_767_571_200_000
MINUTE = 60_000
RULE = """\
id: larger-elsewhere
version: 1
owner: me
on: shop
group_by: [user_id]
sequence:
  - {step: small, where: "type = 'payment' and amount < 50", times: 2}
  - {without: "type = 'login' and country = small.country"}
  - {step: large, where: "type = 'payment' and large.amount > 2 * sum(small.amount) and large.country <> small.country"}
within: 1h
skip: none
then: {severity: low, message: "{user_id} {sum(small.amount)} {large.amount}"}
"""


def events() -> pl.DataFrame:
    """Return events of five users, one every half a minute."""
    number = pl.int_range(400)
    return pl.select(
        event_id=pl.format("e{}", number),
        ts=pl.from_epoch(START + number * MINUTE // 2, "ms").dt.replace_time_zone("UTC"),
        type=pl.when(number * 7 % 5 == 0).then(pl.lit("login")).otherwise(pl.lit("payment")),
        user_id=pl.format("u{}", number * 13 % 5 + number % 2),
        amount=(number * 37 % 101).cast(pl.Float64),
        country=pl.when(number * 11 % 3 == 0).then(pl.lit("it")).otherwise(pl.lit("fr")),
    )


def wanted() -> list[Wanted]:
    def small(row: Row, _taken: Sequence[Sequence[Row]]) -> bool:
        return row["type"] == "payment" and row["amount"] < 50  # type: ignore[operator]

    def same_country(row: Row, taken: Sequence[Sequence[Row]]) -> bool:
        return row["type"] == "login" and row["country"] == taken[0][-1]["country"]

    def large(row: Row, taken: Sequence[Sequence[Row]]) -> bool:
        total = sum(float(str(one["amount"])) for one in taken[0])
        is_large = row["type"] == "payment" and float(str(row["amount"])) > 2 * total
        return is_large and row["country"] != taken[0][-1]["country"]

    return [Wanted(small, 2, None), Wanted(same_country, 0, None), Wanted(large, 1, None)]


@pytest.mark.slow
def test_a_sequence_finds_in_a_lake_by_country_what_a_loop_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = events()
    (tmp_path / "rule.yaml").write_text(RULE)
    rows.write_parquet(tmp_path / "one.parquet")
    for country in ("fr", "it"):
        folder = tmp_path / "lake" / f"country={country}"
        folder.mkdir(parents=True)
        rows.filter(country=country).drop("country").write_parquet(folder / "part.parquet")
    found = {}
    for name in ("one.parquet", "lake"):
        alerts = tmp_path / f"{name}.jsonl"
        options = ["--parquet", str(tmp_path / name), "--alerts", str(alerts), "-o", "json"]
        assert run(["rules", "backtest", str(tmp_path / "rule.yaml"), *options]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert (shown["events"], shown["late"], shown["not_events"]) == (400, 0, [])
        bodies = map(json.loads, alerts.read_text().splitlines())
        found[name] = Counter(
            (one["key"]["user_id"], tuple(event["event_time_ms"] for event in one["events"])) for one in bodies
        )
    expected = Counter[tuple[str, tuple[int, ...]]]()
    for user, own in rows.group_by("user_id"):
        placed = [
            Event(int(row["ts"].timestamp() * 1_000), 0, n, row) for n, row in enumerate(own.sort("ts").to_dicts())
        ]
        matches = find(wanted(), 60 * MINUTE, placed, past_last=False)
        expected.update((str(user[0]), tuple(event.ms for event in match.events)) for match in matches)
    assert sum(expected.values()) > 20
    assert found == {"one.parquet": expected, "lake": expected}


@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=8).map(sorted), min_size=1, max_size=5),
    st.integers(1, 4),
    st.integers(1, 9),
)
def test_files_are_merged_by_time_in_pieces_of_any_size(files: list[list[int]], piece: int, size: int) -> None:
    frames, offset = [], 0
    for times in files:
        numbers = range(offset, offset + len(times))
        frames.append(pl.DataFrame({EVENT_MS: times, OFFSET: numbers}, {EVENT_MS: pl.Int64, OFFSET: pl.Int64}))
        offset += len(times)

    def read(frame: pl.DataFrame) -> list[tuple[int, pl.DataFrame]]:
        return [(part.height, part) for part in frame.iter_slices(piece)]

    given_files = [
        (TimeSpan(times[0], times[-1]), functools.partial(lambda frame: iter(read(frame)), frame))
        for times, frame in zip(files, frames, strict=True)
    ]
    merged = [*merge_by_time(given_files, size)]
    assert sum(count for count, _ in merged) == offset
    assert pl.concat(frame for _, frame in merged).rows() == sorted(pl.concat(frames).rows())


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 9), (10, 19), (20, 29)], False),
        ([(0, 9), (6, 19), (12, 29)], False),
        ([(0, 9), (6, 11)], True),
        ([(0, 9), (0, 9)], True),
        ([(10, 19), (0, 9)], True),
        ([(0, 9), None], False),
    ],
)
def test_which_files_are_out_of_order(spans: list[tuple[int, int] | None], expected: bool) -> None:
    assert is_out_of_order([span and TimeSpan(*span) for span in spans]) is expected
