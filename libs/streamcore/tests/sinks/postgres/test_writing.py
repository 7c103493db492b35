"""Rows of a table: appended, replaced, deleted, by version, the last of a cut, and those that the server rejects."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streamcore.errors import Fenced, Permanent
from streamcore.sinks.postgres.settings import TableSpec
from streamcore.sinks.sink import WriteOutcome
from tests.harness.cut_ids import cut_id
from tests.harness.servers.postgres_table import CREATE, ORDERS, orders, spec

if TYPE_CHECKING:
    from tests.harness.servers.postgres_table import SinkDatabase

pytestmark = pytest.mark.postgres
ONE, TWO = Decimal("1.00"), Decimal("2.00")


def test_rows_without_a_key_are_appended(sink_database: SinkDatabase) -> None:
    sink_database.run("CREATE TABLE orders (n bigserial, id text, amount numeric, v bigint)")
    sink = sink_database.sink(spec())
    assert sink_database.write(sink, 0, ("a", ONE, 1), ("a", ONE, 1)).rows == 2
    assert sink_database.write(sink, 1, ("a", TWO, 2)).rows == 1
    assert sink_database.rows() == [(1, "a", ONE, 1), (2, "a", ONE, 1), (3, "a", TWO, 2)]


def test_a_row_replaces_the_one_with_its_key(sink_database: SinkDatabase) -> None:
    sink_database.run(CREATE)
    sink = sink_database.sink(spec("orders", "id"))
    sink_database.write(sink, 0, ("a", ONE, 1), ("b", ONE, 1))
    assert sink_database.write(sink, 1, ("a", None, 0), ("c", TWO, 2)).rows == 2
    assert sink_database.rows() == [("a", None, 0), ("b", ONE, 1), ("c", TWO, 2)]


def test_the_last_of_several_rows_with_one_key_in_a_cut_wins(sink_database: SinkDatabase) -> None:
    sink_database.run(CREATE)
    sink = sink_database.sink(spec("orders", "id"))
    assert sink_database.write(sink, 0, ("a", ONE, 1), ("b", ONE, 1), ("a", TWO, 2)).rows == 2
    assert sink_database.rows() == [("a", TWO, 2), ("b", ONE, 1)]


def test_only_a_higher_version_replaces_within_a_cut_and_between_cuts(sink_database: SinkDatabase) -> None:
    sink_database.run(CREATE)
    sink = sink_database.sink(spec("orders", "id", version="v"))
    sink_database.write(sink, 0, ("a", ONE, 5), ("a", TWO, 4), ("a", TWO, 5), ("b", ONE, 1))
    assert sink_database.rows() == [("a", ONE, 5), ("b", ONE, 1)]
    assert sink_database.write(sink, 1, ("a", TWO, 5), ("b", TWO, 2)).rows == 1
    assert sink_database.rows() == [("a", ONE, 5), ("b", TWO, 2)]


DELETING = pa.schema([*ORDERS, ("gone", pa.bool_())])


def test_a_row_marked_as_deleted_deletes_its_key_and_a_later_row_inserts_it_again(sink_database: SinkDatabase) -> None:
    sink_database.run(CREATE)
    sink = sink_database.sink(spec("orders", "id", deleted="gone"), {"orders": DELETING})

    def write(batch: int, *rows: tuple[object, ...]) -> int:
        return sink.write(cut_id(batch), {"orders": orders(*rows, schema=DELETING)}).rows

    assert write(0, ("a", ONE, 1, False), ("b", ONE, 1, None), ("c", ONE, 1, False), ("c", ONE, 1, True)) == 2
    assert write(1, ("a", ONE, 1, True), ("b", ONE, 1, True), ("b", TWO, 2, False), ("x", None, 0, True)) == 1
    assert sink_database.rows() == [("b", TWO, 2)]
    assert write(2, ("a", TWO, 3, False)) == 1
    assert sink_database.rows() == [("a", TWO, 3), ("b", TWO, 2)]


def test_lanes_are_written_in_order_so_that_a_row_can_reference_one_of_the_same_cut(
    sink_database: SinkDatabase,
) -> None:
    lines = pa.schema([("order_id", pa.large_string()), ("gone", pa.bool_())])
    sink_database.run(
        CREATE, "CREATE TABLE lines (order_id text PRIMARY KEY REFERENCES orders DEFERRABLE INITIALLY DEFERRED)"
    )
    tables = {"orders": spec("orders", "id", deleted="gone"), "lines": spec("lines", "order_id", deleted="gone")}
    sink = sink_database.sink(tables, {"lines": lines, "orders": DELETING})
    order_rows = orders(("a", ONE, 1, False), schema=DELETING)
    written = sink.write(cut_id(0), {"lines": orders(("a", False), ("b", False), schema=lines), "orders": order_rows})
    assert [(one.lane, one.row, one.code) for one in written.rejected] == [("lines", 1, "23503")]
    assert sink_database.rows("SELECT * FROM lines") == [("a",)]
    gone = orders(("a", ONE, 1, True), schema=DELETING)
    assert not sink.write(cut_id(1), {"lines": orders(("a", True), schema=lines), "orders": gone}).rejected
    assert sink_database.rows() == []


def test_rejected_rows_have_the_reason_of_the_server_and_the_others_are_written(
    sink_database: SinkDatabase,
) -> None:
    sink_database.run(
        "CREATE TABLE orders (id varchar(3) PRIMARY KEY, amount numeric(4,2) CHECK (amount > 0), v integer NOT NULL,"
        " UNIQUE (v))"
    )
    sink = sink_database.sink(spec("orders", "id"))
    rows = [(f"{n:03}", ONE, n) for n in range(200)]
    rows[3] = ("toolong", ONE, 3)
    rows[50] = ("050", Decimal("-1.00"), 50)
    rows[51] = ("051", Decimal("1234.00"), 51)
    rows[99] = ("099", ONE, 1 << 40)
    rows[100] = ("100", ONE, None)  # type: ignore[assignment, unused-ignore]
    rows[150] = ("150", ONE, 20)  # another row's value, which comes first
    rows[160] = ("a\0b", ONE, 160)
    rows[170] = (None, ONE, 170)  # type: ignore[assignment, unused-ignore]
    written = sink_database.write(sink, 0, *rows)
    codes = {3: "22001", 50: "23514", 51: "22003", 99: "22003", 100: "23502", 150: "23505", 160: "22021", 170: "23502"}
    assert {one.row: one.code for one in written.rejected} == codes
    assert [one.row for one in written.rejected] == sorted(codes)
    assert "numeric field overflow" in {one.reason for one in written.rejected}
    assert written.rows == len(rows) - len(codes)
    assert sink_database.rows() == [row for n, row in enumerate(rows) if n not in codes]


def test_a_replayed_cut_is_skipped_and_reports_the_same_rejected_rows(sink_database: SinkDatabase) -> None:
    sink_database.run("CREATE TABLE orders (id text PRIMARY KEY, amount numeric(4,2), v bigint)")
    rows = [("a", ONE, 1), ("b", Decimal("999.00"), 1), ("c", TWO, 1)]
    first = sink_database.write(sink_database.sink(spec("orders", "id")), 7, *rows)
    sink = sink_database.sink(spec("orders", "id"))
    again = sink_database.write(sink, 7, *rows)
    assert (first.outcome, again.outcome) == (WriteOutcome.COMMITTED, WriteOutcome.SKIPPED)
    assert (again.rows, list(again.rejected)) == (first.rows, list(first.rejected))
    assert [(one.row, one.reason) for one in again.rejected] == [(1, "numeric field overflow")]
    with pytest.raises(Fenced, match="batch 6 is to be written, and the ledger shows batch 7 as its last"):
        sink_database.write(sink, 6, *rows)


def test_a_cut_of_another_copy_of_the_checkpoint_is_not_taken_for_a_replay(sink_database: SinkDatabase) -> None:
    sink_database.run(CREATE)
    theirs, ours = (sink_database.sink(spec("orders", "id")) for _ in range(2))
    assert theirs.write(cut_id(3, history=1), {"orders": orders(("a", ONE, 1))}).outcome is WriteOutcome.COMMITTED
    with pytest.raises(Fenced, match="batch 3 is to be written, and the ledger shows batch 3 with other input"):
        ours.write(cut_id(3), {"orders": orders(("b", ONE, 1))})
    assert [row[0] for row in sink_database.rows()] == ["a"]


def test_when_the_last_row_of_a_key_is_rejected_the_previous_one_wins(sink_database: SinkDatabase) -> None:
    sink_database.run("CREATE TABLE orders (id text PRIMARY KEY, amount numeric(4,2), v bigint)")
    bad = Decimal("999.00")
    sink = sink_database.sink(spec("orders", "id"))
    written = sink_database.write(sink, 0, ("a", ONE, 1), ("a", TWO, 2), ("b", ONE, 1), ("a", bad, 3), ("a", bad, 4))
    assert [one.row for one in written.rejected] == [3, 4]
    assert written.rows == 2
    assert sink_database.rows() == [("a", TWO, 2), ("b", ONE, 1)]


def test_more_rejected_rows_than_the_limit_stop_the_sink_and_write_nothing(sink_database: SinkDatabase) -> None:
    sink_database.run("CREATE TABLE orders (id text PRIMARY KEY, amount numeric(4,2), v bigint)")
    sink = sink_database.sink(spec("orders", "id"), max_rejected=2)
    bad = Decimal("999.00")
    with pytest.raises(Permanent, match=r"more than 2 rows .* numeric field overflow .*raise max_rejected"):
        sink_database.write(sink, 0, ("a", ONE, 1), *((f"b{n}", bad, 1) for n in range(3)))
    assert sink_database.rows() == []


def test_a_cut_without_rows_sends_no_query_and_leaves_no_trace(sink_database: SinkDatabase) -> None:
    sink_database.run(CREATE)
    sink = sink_database.sink(spec("orders", "id"))
    assert sink.write(cut_id(3), {}).outcome is WriteOutcome.EMPTY
    assert sink.write(cut_id(3), {"orders": ORDERS.empty_table()}).outcome is WriteOutcome.EMPTY
    assert sink_database.rows("SELECT batch FROM headgate_ledger") == [(None,)]


def test_text_is_converted_to_uuid_and_jsonb_by_the_rules_of_postgresql(sink_database: SinkDatabase) -> None:
    schema = pa.schema([("id", pa.int64()), ("u", pa.large_string()), ("j", pa.large_string())])
    sink_database.run("CREATE TABLE orders (id bigint PRIMARY KEY, u uuid, j jsonb)")
    sink = sink_database.sink(spec("orders", "id"), {"orders": schema})
    name = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    rows = orders((1, name, '{"a": [1, null]}'), (2, "no", "{}"), (3, name, "{"), schema=schema)
    written = sink.write(cut_id(0), {"orders": rows})
    assert [(one.row, one.code) for one in written.rejected] == [(1, "22P02"), (2, "22P02")]
    assert [(n, str(u), j) for n, u, j in sink_database.rows()] == [(1, name, {"a": [1, None]})]


def test_another_session_sees_all_of_a_cut_or_nothing(sink_database: SinkDatabase) -> None:
    from streamcore.sinks.postgres.sink import PostgresStep
    from streamcore.sinks.sink import SinkHooks

    sink_database.run(CREATE)
    seen: dict[str, int] = {}
    hooks = SinkHooks(on_step=lambda step: seen.update({step: len(sink_database.rows())}))
    sink_database.write(
        sink_database.sink(spec("orders", "id"), hooks=hooks), 0, *((str(n), ONE, n) for n in range(500))
    )
    assert seen == dict.fromkeys(PostgresStep, 0) | {PostgresStep.COMMITTED: 500}


def test_version_and_deleted_together_are_rejected_with_a_reason() -> None:
    from streamcore.errors import ConfigError

    with pytest.raises(ConfigError, match="older row would bring it back"):
        TableSpec(spec().table, ("id",), "v", "gone")
