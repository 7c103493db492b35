"""Lists for events that have been: those of files and of an app as one store, and a store as control records again.

Promises: a kernel that takes the ``control_records`` of a store holds what the store holds. What lists were before
their present versions is not known here; entries count as of the time that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from rulecore.control_keys import LIST_KEY, LIST_PART_KEY
from rulecore.lang import Expr
from rulecore.lists.asked import lift
from rulecore.lists.columns import with_list_columns
from rulecore.lists.content import ListContent
from rulecore.lists.store import ListStore


def store_of(records: Iterable[tuple[str, bytes]]) -> ListStore:
    """The lists that these control records publish, each list's parts before its head."""
    store = ListStore.empty()
    for key, value in records:
        store, _ = store.apply(key, value)
    return store


def control_records(store: ListStore, without: Iterable[str] = ()) -> list[tuple[str, bytes]]:
    """Keys and values that publish what a store holds, but for the lists of these names; parts first."""
    left_out = {LIST_KEY + name for name in without}
    rows = [(key, value) for key, value in store.records() if key not in left_out]
    parts = [row for row in rows if row[0].startswith(LIST_PART_KEY)]
    return [*parts, *(row for row in rows if row[0].startswith(LIST_KEY))]


def over_columns(frame: pl.DataFrame, expr: Expr, contents: Mapping[str, ListContent]) -> tuple[pl.DataFrame, Expr]:
    """A condition over columns only, and the frame with those that it needs."""
    lifted, columns = lift(expr)
    return with_list_columns(frame, columns, contents), lifted
