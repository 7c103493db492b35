"""Lists for events that have been: those of files and of an app as one store, and a store as control records again.

Promises: a kernel that takes the ``control_records`` of a store holds the content of the store. The state of lists
before their present versions is unknown here; entries count as of the time that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from rulecore.documents.control_keys import LIST_KEY, LIST_PART_KEY
from rulecore.language import Expr
from rulecore.lists.content import ListContent
from rulecore.lists.fill_columns import with_list_columns
from rulecore.lists.list_columns import extract_list_columns
from rulecore.lists.store import ListStore


def store_from_records(records: Iterable[tuple[str, bytes]]) -> ListStore:
    """Return the lists that these control records publish, each list's parts before its head."""
    store = ListStore.empty()
    for key, value in records:
        store, _ = store.apply(key, value)
    return store


def control_records(store: ListStore, without: Iterable[str] = ()) -> list[tuple[str, bytes]]:
    """Return the keys and values that publish a store's content, except the lists of these names; parts first."""
    left_out = {LIST_KEY + name for name in without}
    rows = [(key, value) for key, value in store.records() if key not in left_out]
    parts = [row for row in rows if row[0].startswith(LIST_PART_KEY)]
    return [*parts, *(row for row in rows if row[0].startswith(LIST_KEY))]


def with_columns_for(frame: pl.DataFrame, expr: Expr, contents: Mapping[str, ListContent]) -> tuple[pl.DataFrame, Expr]:
    """Return a condition over columns only, and the frame with those that it needs."""
    lifted, columns = extract_list_columns(expr)
    return with_list_columns(frame, columns, contents), lifted
