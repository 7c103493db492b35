"""The contents of the index after cuts: the last row of an id, no deleted document, the same after any replay."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.local.servers.opensearch import EmbeddedOpenSearch
from streamcore.sinks.opensearch import sink as sink_module
from streamcore.sinks.opensearch.bulk_lines import BulkLines, LaneDocuments, document_version
from streamcore.sinks.opensearch.ledger import INDEX
from streamcore.sinks.opensearch.settings import BulkLimits, IndexSpec
from streamcore.sinks.opensearch.sink import OpenSearchSink
from streamcore.sinks.sink import Guarantee, SinkHooks, WriteOutcome, WriteResult
from tests.harness.cut_ids import cut_id
from tests.harness.servers.search_index import Row, SearchIndex, index_on, oracle, table, write

pytestmark = pytest.mark.opensearch


class _Crashed(Exception):
    """The process ends here."""


def test_the_last_row_of_an_id_in_a_cut_wins_and_is_sent_once(search_index: SearchIndex) -> None:
    sink = search_index.sink()
    sink.open(search_index.owner())
    written = write(sink, 0, [("a", "old", 1, False), ("b", "x", 2, None), ("a", "new", 3, False)])
    assert written == WriteResult(WriteOutcome.COMMITTED, 2, [])
    assert sink.counts.documents == 2
    assert search_index.contents() == {"a": ("new", 3), "b": ("x", 2)}
    assert sink.guarantee is Guarantee.IDEMPOTENT
    sink.close()


def test_a_deleted_document_can_be_written_again_later(search_index: SearchIndex) -> None:
    sink = search_index.sink()
    sink.open(search_index.owner())
    write(sink, 0, [("a", "x", 1, False), ("b", "x", 1, False)])
    write(sink, 1, [("a", None, None, True), ("never there", None, None, True)])
    assert search_index.contents() == {"b": ("x", 1)}
    write(sink, 2, [("a", "again", 2, False)])
    assert search_index.contents() == {"a": ("again", 2), "b": ("x", 1)}
    sink.close()


def test_ids_of_several_columns_and_unusual_texts_give_distinct_documents(search_index: SearchIndex) -> None:
    sink = search_index.sink(id=("id", "name"))
    sink.open(search_index.owner())
    rows: list[Row] = [('a"', "b\n", 1, False), ('a","b', "", 2, False), ("ü\u2028", "\\", 3, False)]
    write(sink, 0, rows)
    assert search_index.contents() == {
        '["a\\"","b\\n"]': ("b\n", 1),
        '["a\\",\\"b",""]': ("", 2),
        '["ü\u2028","\\\\"]': ("\\", 3),
    }
    sink.close()


def test_rows_with_an_id_that_the_server_rejects_are_rejected_one_by_one(search_index: SearchIndex) -> None:
    sink = search_index.sink()
    sink.open(search_index.owner())
    long = "ü" * 257
    written = sink.write(
        cut_id(0), {"products": table([(None, "x", 1, False), ("ok", "x", 1, False), (long, "x", 1, False)])}
    )
    assert [(one.row, one.code) for one in written.rejected] == [(0, "id_missing"), (2, "id_too_long")]
    assert written.rows == 1
    assert search_index.contents() == {"ok": ("x", 1)}
    sink.close()


def test_a_rejected_document_has_the_reason_of_the_server_and_keeps_the_previous_row(
    search_index: SearchIndex,
) -> None:
    number = {"name": {"type": "long"}}
    sink = search_index.sink(properties=number)
    sink.open(search_index.owner())
    rows: list[Row] = [("a", "1", 1, False), ("b", "many", 2, False), ("a", "few", 3, False), ("c", "3", 4, False)]
    for _ in range(2):  # the same again, when the cut is written again
        written = sink.write(cut_id(0), {"products": table(rows)})
        assert [(one.lane, one.row, one.code) for one in written.rejected] == [
            ("products", 1, "mapper_parsing_exception"),
            ("products", 2, "mapper_parsing_exception"),
        ]
        assert "failed to parse field [name] of type [long]" in written.rejected[0].reason
        assert 'For input string: "many"' in written.rejected[0].reason
        assert written.rows == 2
        assert search_index.contents() == {"a": ("1", 1), "c": ("3", 4)}
    sink.close()


def test_column_types_become_mappings_that_keep_values_exact(search_index: SearchIndex) -> None:
    import datetime as dt
    from decimal import Decimal

    schema = pa.schema(
        [
            ("id", pa.large_string()),
            ("price", pa.decimal128(18, 2)),
            ("at", pa.timestamp("ms", "UTC")),
            ("rate", pa.float64()),
            ("sold", pa.bool_()),
        ]
    )
    settings = replace(search_index.settings(), indexes={"products": IndexSpec(search_index.alias, ("id",))})
    sink = OpenSearchSink(settings, {"products": schema}, SinkHooks())
    sink.open(search_index.owner())
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000, dt.UTC)
    row = {"id": "a", "price": Decimal("9007199254740993.01"), "at": at, "rate": 1e300, "sold": True}
    sink.write(cut_id(0), {"products": pa.Table.from_pylist([row], schema=schema)})
    found = search_index.ask("GET", f"/{search_index.alias}/_doc/a")["_source"]
    assert found == row | {"price": "9007199254740993.01", "at": "2026-01-02T03:04:05.678+00:00"}
    mapping = search_index.ask("GET", f"/{search_index.alias}-000001/_mapping")[f"{search_index.alias}-000001"]
    assert isinstance(mapping, dict)
    kinds = {name: one["type"] for name, one in mapping["mappings"]["properties"].items()}
    assert kinds == {"id": "keyword", "price": "scaled_float", "at": "date", "rate": "double", "sold": "boolean"}
    sink.close()


_IDS = st.sampled_from(["a", "b", "c", "d", "e"])
_ROWS = st.lists(st.tuples(_IDS, st.sampled_from(["x", "y"]), st.integers(0, 9), st.booleans()), max_size=8)
#: Where the process dies in each attempt of a cut, until one attempt succeeds.
_CRASHES = st.lists(st.sampled_from(["live", "request", "sent", "recorded"]), max_size=2)


def _run(search_index: SearchIndex, cuts: Sequence[Sequence[Row]], crashes: Sequence[Sequence[str]]) -> None:
    """Write the cuts, as if the ledger were lost; after a crash a new process repeats the cut."""

    search_index.ask("DELETE", f"/{INDEX}")
    for batch, rows in enumerate(cuts):
        for step in [*crashes[batch], None]:

            def reached(name: str, step: str | None = step) -> None:
                if name == step:
                    raise _Crashed

            one = OpenSearchSink(
                search_index.settings(limits=BulkLimits(2, 1_000_000, 1)),
                search_index.sink()._columns,
                SinkHooks(on_step=reached),
            )
            one.open(search_index.owner())
            try:
                write(one, batch, rows)
            except _Crashed:
                continue
            finally:
                one.close()


@pytest.mark.slow
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data(), cuts=st.lists(_ROWS, min_size=1, max_size=4))
def test_contents_equal_the_oracle_however_often_the_process_dies_and_cuts_are_replayed(
    opensearch: EmbeddedOpenSearch, data: st.DataObject, cuts: list[list[Row]]
) -> None:
    search_index = index_on(opensearch)
    _run(search_index, cuts, [data.draw(_CRASHES) for _ in cuts])
    wanted = oracle(dict(enumerate(cuts)))
    assert search_index.contents() == wanted
    # A replay of the cuts up to any one of them, in order, changes nothing.
    _run(search_index, cuts[: data.draw(st.integers(0, len(cuts)))], [[]] * len(cuts))
    assert search_index.contents() == wanted
    search_index.ask("DELETE", f"/{search_index.alias}-0*")


def test_without_external_versions_a_replay_restores_overwritten_and_deleted_documents(
    search_index: SearchIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The protection off: the test above would fail."""

    class Unversioned(LaneDocuments):
        def last(self) -> BulkLines:
            lines = super().last()
            plain = [re.sub(r',"version":\d+,"version_type":"external"', "", text) for text in lines.text.to_pylist()]
            return BulkLines(pa.array(plain, pa.large_string()), lines.rows)

    cuts: list[list[Row]] = [[("a", "x", 1, False), ("b", "x", 1, False)], [("a", "y", 2, False), ("b", None, 0, True)]]
    _run(search_index, cuts, [[], []])
    _run(search_index, cuts[:1], [[]])
    assert search_index.contents() == {"a": ("y", 2)}
    monkeypatch.setattr(sink_module, "LaneDocuments", Unversioned)
    _run(search_index, cuts[:1], [[]])
    assert search_index.contents() == {"a": ("x", 1), "b": ("x", 1)}


def test_versions_grow_with_cuts_and_restores() -> None:
    assert (
        document_version(1, 0)
        < document_version(1, 1)
        < document_version(2, 0)
        < document_version(2**23 - 1, 2**40 - 1)
        < 2**63
    )


def test_a_cut_without_rows_writes_nothing(search_index: SearchIndex) -> None:
    sink = search_index.sink()
    sink.open(search_index.owner())
    assert sink.write(cut_id(0), {}) == WriteResult(WriteOutcome.EMPTY)
    assert search_index.contents() == {}
    sink.close()
