"""A condition over earlier events that raises: its record is a dead letter, and other matches are as without it."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from unittest.mock import patch

import orjson
import polars as pl
import pytest

import streamcore as sc
from streamcore.errors import ConfigError
from streamcore.patterns import engine
from streamcore.patterns.expressions import MatchExpression
from streamcore.topology.simulation import Simulation, SimulationResult
from streamcore.wire.raw import RAW_OFFSET, RAW_PARTITION, RAW_VALUE

EVENTS = sc.StreamSchema.parse(
    {
        "name": "events",
        "event_time": "at",
        "keys": [["key"]],
        "fields": {"at": "timestamp not null", "key": "string", "letter": "string", "v": "long", "n": "long not null"},
    }
)
candidate, matched = sc.candidate, sc.matched
#: A time that is ``v`` times as far behind the first event; beyond the year 9999 it raises.
AHEAD = candidate("at") + (candidate("at") - matched("a").last("at")) * candidate("v")
TOO_FAR = 10**15
#: By key, the letter and ``v`` of each event. Two partial matches of "x" meet the event that fails.
STREAM = [
    ("x", "a", 0),
    ("y", "a", 0),
    ("x", "a", 0),
    ("x", "b", TOO_FAR),
    ("y", "b", 1),
    ("x", "b", 2),
    ("z", "b", TOO_FAR),  # without a partial match nothing is computed
    ("y", "a", 0),
    ("y", "b", TOO_FAR),
    ("y", "b", 5),
]


def topology(*, raw: bool) -> sc.Topology:
    first = sc.Pattern.begin("a").where(pl.col("letter") == "a")
    pattern = first.followed_by("b").where(pl.col("letter") == "b").where(matched("a").last("at") < AHEAD)
    rows = sc.source(EVENTS, sc.bounded_out_of_orderness("3ms"), raw=raw).key_by("key").pattern(pattern)
    return sc.Topology("t", rows.select("find", a=matched("a").first("n"), b=matched("b").last("n")).sink("matches"))


def run(size: int, *, shards: int = 1, restart: bool = False, raw: bool = True) -> SimulationResult:
    """Run ``STREAM`` in cuts of this size, with a new process for each cut if ``restart``."""
    rows = pl.DataFrame(
        [
            (key, letter, v, n, datetime.fromtimestamp(n / 1000, UTC), f"record {n}".encode(), 0, n)
            for n, (key, letter, v) in enumerate(STREAM)
        ],
        schema={
            "key": pl.String(),
            "letter": pl.String(),
            "v": pl.Int64(),
            "n": pl.Int64(),
            "at": pl.Datetime("ms", "UTC"),
            RAW_VALUE: pl.Binary(),
            RAW_PARTITION: pl.Int32(),
            RAW_OFFSET: pl.Int64(),
        },
        orient="row",
    ).with_columns(pl.lit(None, pl.Binary()).alias("@key"))
    simulation, result = Simulation(topology(raw=raw), shards=shards), SimulationResult()
    for at in range(0, len(STREAM), size):
        if restart:
            simulation = Simulation(simulation.topology, shards=shards, blobs=simulation.blobs)
        result.add(simulation.cut({"events": rows[at : at + size]}))
    result.add(simulation.end())
    return result


@pytest.mark.slow
@pytest.mark.parametrize("fewest_runs", [0, engine.FEWEST_RUNS])
@pytest.mark.parametrize(("size", "restart"), [(10, False), (1, False), (3, False), (1, True), (3, True)])
def test_its_record_is_one_dead_letter_and_matches_are_unaffected(
    *, fewest_runs: int, size: int, restart: bool
) -> None:
    with patch.object(engine, "FEWEST_RUNS", fewest_runs):
        for shards in (1, 3):
            result = run(size, shards=shards, restart=restart)
            matches = sorted(result["matches"].select("key", "a", "b").rows())
            assert matches == [("x", 0, 5), ("x", 2, 5), ("y", 1, 4), ("y", 7, 9)]
            letters = [(letter.value or b"", dict(letter.headers)) for letter in result.dead]
            assert sorted(value for value, _ in letters) == [b"record 3", b"record 8"]
            for value, headers in letters:
                assert headers["source_offset"] == value.split()[1]
                assert (headers["source_topic"], headers["source_partition"]) == (b"events", b"0")
                assert headers["reason_code"] == b"failed"
                assert headers["reason"] == b"find: pattern condition: OverflowError: date value out of range"
            assert result.counters["find.failed"] == 2


def test_without_the_bytes_of_records_the_dead_letter_has_the_row() -> None:
    values = [orjson.loads(letter.value or b"") for letter in run(3, restart=True, raw=False).dead]
    assert [(v["key"], v["letter"], v["v"], v["n"]) for v in values] == [
        ("x", "b", TOO_FAR, 3),
        ("y", "b", TOO_FAR, 8),
    ]


def test_a_division_by_zero_is_null_for_every_type_of_number() -> None:
    for zero in (0, 0.0, Decimal(0)):
        for condition in (candidate("v") / matched("a").sum("v"), candidate("v") % matched("a").sum("v")):
            for value in (zero, type(zero)(5)):
                assert condition.value({"v": value}, [zero]) is None
                assert not (condition >= 0).holds({"v": value}, [zero])


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (
            candidate("letter") > matched("a").last("v"),
            "pattern: (candidate('letter') > matched('a').last('v')): it cannot be computed: '>' not supported between "
            "instances of 'str' and 'int'; candidate('letter') is String, matched('a').last('v') is Int64",
        ),
        (candidate("v") - matched("a").last("at") > 0, "it cannot be computed"),
        (candidate("v") > matched("a").sum("letter"), "sum of 'letter', which is String"),
        (candidate("v") + matched("a").count(), "it gives a int; write a condition, which is true or false"),
        (candidate("v") > matched("a").last("w"), "the stream has no columns ['w']; it has ['at', "),
        (candidate("w") > matched("a").last("v"), "the stream has no columns ['w']; it has ['at', "),
        (candidate("v") > matched("c").last("v"), "matched('c')"),
    ],
)
def test_a_condition_that_cannot_be_computed_from_its_types_is_rejected(
    condition: MatchExpression, message: str
) -> None:
    first = sc.Pattern.begin("a").where(pl.col("letter") == "a")
    found = sc.source(EVENTS).key_by("key").pattern(first.followed_by("b").where(condition))
    with pytest.raises(ConfigError) as caught:
        found.select(v=matched("a").last("v"))
    assert message in str(caught.value)
