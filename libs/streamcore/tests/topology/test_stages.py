"""Where the nodes of a topology run, and what is sent between them."""

from __future__ import annotations

import pickle

import polars as pl
import pytest

from streamcore.aggregates import Sum
from streamcore.errors import ConfigError
from streamcore.schema import StreamSchema
from streamcore.topology.nodes import SinkNode
from streamcore.topology.simulation import simulate
from streamcore.topology.stream import Stream, operate, source
from streamcore.topology.topology import Topology
from streamcore.windowing import Tumbling
from tests.harness.apps.running_sums import MakeRunningSums


def schema(name: str) -> StreamSchema:
    fields = {"ts": "timestamp not null", "user": "string", "shop": "string", "n": "long", "price": "decimal(9,2)"}
    return StreamSchema.parse({"name": name, "event_time": "ts", "keys": [["user"]], "fields": fields})


def sums(stream: Stream, key: str, value: str = "n", name: str = "") -> Stream:
    return operate([stream.key_by(key)], "sums", MakeRunningSums(key, value), name=name)


A, B = source(schema("a")), source(schema("b"))


def sink_with_late_lane(lane: str) -> SinkNode:
    """A sink of windows whose late rows are on the lane."""
    return A.key_by("user").window(Tumbling(1_000)).late_to(lane).aggregate(n=Sum("n")).sink("windows")


def test_outputs_with_equal_columns_share_a_lane() -> None:
    topology = Topology("t", A.select("n", "user").sink("o"), A.select("user", "n").sink("o"))
    rows = pl.DataFrame([{"ts": 5, "user": "x", "shop": "s", "n": 1, "price": 2}])
    assert simulate(topology, {"a": rows})["o"].rows() == [(1, "x")] * 2


def levels_by_name(topology: Topology) -> dict[str, set[int]]:
    return {topology.node_name(node): set(levels) for node, levels in topology.levels.level_by_node.items()}


def exchanges(topology: Topology) -> list[tuple[str, int, int, tuple[str, ...]]]:
    return [(s.exchange.rows.stream, s.level, s.exchange.stage + 1, s.exchange.key) for s in topology.levels.exchanges]


def test_a_step_without_a_key_runs_in_the_stage_of_its_rows() -> None:
    topology = Topology("t", A.filter(pl.col("n") > 0).sink("out"))
    assert levels_by_name(topology) == {"a": {0}, "filter-1": {0}, "sink-1": {0}}
    assert exchanges(topology) == []


def test_another_key_starts_another_stage() -> None:
    by_user = sums(A, "user").map(letter=pl.col("user").str.slice(0, 1))
    topology = Topology("t", sums(by_user, "letter", "total").sink("out"))
    assert levels_by_name(topology) == {"a": {0}, "sums-1": {1}, "map-1": {1}, "sums-2": {2}, "sink-1": {2}}
    assert exchanges(topology) == [("sums-1.0", 0, 1, ("user",)), ("sums-2.0", 1, 2, ("letter",))]


def test_the_same_key_again_needs_no_exchange() -> None:
    by_user = sums(A, "user").filter(pl.col("total") > 1)
    topology = Topology("t", sums(by_user, "user", "total").sink("out"))
    assert levels_by_name(topology)["sums-2"] == {1}
    assert len(exchanges(topology)) == 1


def test_a_recomputed_key_column_counts_as_another_key() -> None:
    by_user = sums(A, "user").map(user=pl.col("user").str.slice(0, 1))
    topology = Topology("t", sums(by_user, "user", "total").sink("out"))
    assert levels_by_name(topology)["sums-2"] == {2}


def test_a_union_of_several_stages_runs_in_each_of_them_and_an_operator_receives_both() -> None:
    early = A.select("user", pl.col("n").alias("total"))
    topology = Topology(
        "t",
        sums(early.union(sums(B, "shop").select(pl.col("shop").alias("user"), "total")), "user", "total").sink("out"),
    )
    assert levels_by_name(topology)["union-1"] == {0, 1}
    assert exchanges(topology)[-2:] == [("sums-2.0", 0, 2, ("user",)), ("sums-2.0", 1, 2, ("user",))]


def test_rows_that_several_operators_need_by_one_key_are_sent_once() -> None:
    joined = A.key_by("user").join(B.key_by("user")).within(0, "10ms")
    counted = A.key_by("user").window(Tumbling(1_000)).aggregate(n=Sum("n"))
    topology = Topology("t", joined.sink("j"), counted.sink("c"), sums(A, "user").sink("s"), sums(A, "shop").sink("x"))
    assert [(level, key) for _, level, _, key in exchanges(topology)] == [
        (0, ("user",)),
        (0, ("user",)),
        (0, ("shop",)),
    ]


def test_an_operator_receives_only_the_columns_that_it_reads() -> None:
    counted = A.key_by("user").window(Tumbling(1_000)).aggregate(n=Sum("n"))
    (shuffle,) = Topology("t", counted.sink("c")).plan().stages[0].exchanges
    assert shuffle.columns == ("user", "n")


def test_each_operator_has_the_watermark_of_the_sources_that_feed_it() -> None:
    topology = Topology("t", sums(A, "user").sink("x"), sums(B, "user").sink("y"), sums(A.union(B), "user").sink("z"))
    assert topology.watermark_groups == ((0, 1), (0,), (1,))


def test_a_topology_can_be_pickled() -> None:
    topology = Topology("t", sums(A.map(x=pl.col("n") * 2), "user").sink("out"))
    assert pickle.loads(pickle.dumps(topology)).text() == topology.text()


def test_the_text_shows_the_stage_of_each_step() -> None:
    by_user = sums(A, "user", name="by-user")
    topology = Topology("shop", by_user.sink("totals", key="user"), by_user.side("late").sink("late"))
    assert topology.text() == (
        "topology shop\n\n"
        "without a key\n"
        "  a                    source (field time, disorder 10 s)\n\n"
        "keyed stage 1, by user\n"
        "  by-user              sums <- a\n"
        "  sink-1               lane totals (key user) <- by-user\n"
        "  sink-2               lane late <- by-user.late\n"
    )


def test_the_mermaid_picture_has_every_node_and_arrow() -> None:
    picture = Topology("t", sums(A, "user").sink("out")).mermaid()
    assert picture.startswith("flowchart LR\n")
    assert "n0_0 -.-> n1_1" in picture
    assert "n1_1 --> n2_1" in picture


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: A.map(x=pl.col("nope")), "map: .*nope"),
        (lambda: A.map(x=pl.col("n") + pl.col("user").str.len_chars().cast(pl.Date).dt.truncate("1z")), "map: "),
        (lambda: A.filter(pl.col("n")), "filter"),
        (lambda: A.key_by("nope"), r"key_by: the stream has no columns \['nope'\]"),
        (lambda: A.sink("x", key="nope"), "sink x"),
        (lambda: A.union(A.select("n")), "union: the columns differ"),
        (lambda: A.side("late"), "source has no side output 'late'; it has none"),
        (lambda: sums(A, "user").side("other"), r"no side output 'other'; it has \['late'\]"),
        (lambda: A.flat_map(lambda rows: rows.select("n")), "column __event_ms must be kept"),
        (lambda: A.flat_map(pl.DataFrame.to_dicts), "not list"),  # type: ignore[arg-type]
        (lambda: Topology("t"), "it has no sink"),
        (lambda: Topology("t", sums(A, "user", name="x").sink("o"), sums(A, "shop", name="x").sink("o")), "named 'x'"),
        (
            lambda: Topology("t", A.select("n").sink("o"), A.select("user").sink("o")),
            "topology t: lane o gets columns n Int64 from select-1 and user String from select-2; use two lanes",
        ),
        (lambda: Topology("t", A.select("n").table("o"), A.select("user").table("o")), "lane o gets columns n Int64"),
        (
            lambda: Topology("t", sums(A, "user").sink("o"), sink_with_late_lane("o")),
            "from sums-1 and .* from window-1.late",
        ),
        (lambda: Topology("t", sums(A, "user").sink("o")).app(lanes={"o": "a"}), "reads topic a .* lane o to it, an"),
        (lambda: Topology("t", A.sink("o")).app(control_topic="a"), "topic a is the control topic and a source"),
        (lambda: Topology("t", A.sink("o")).app(lanes={"o": "x"}, control_topic="x"), "reads topic x .* an endless"),
        (lambda: Topology("t", sums(A, "user", name="Ä").sink("o")), "node name 'Ä'"),
    ],
)
def test_an_invalid_step_is_rejected_where_it_is_written(wrong: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        wrong()  # type: ignore[operator]
