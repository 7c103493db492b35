"""Splits the rows of a mapping stage: those that failed become dead letters, the others go on."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import polars as pl

from rulecore.mapping.types import CODE, REASON

if TYPE_CHECKING:
    from streamcore.topology.nodes import SinkNode
    from streamcore.topology.stream import Stream


def keep_valid(rows: Stream, dead_letters: list[SinkNode], *, without: Collection[str] = ()) -> Stream:
    """Keep the rows that did not fail, and append the dead-letter lane of the failed rows to ``dead_letters``.

    ``without``: further columns that the kept rows lose, such as those of the original record.
    """
    dead_letters.append(rows.filter(pl.col(CODE).is_not_null()).dead_letters(CODE, REASON))
    kept = [name for name in rows.schema if name not in (CODE, REASON, *without)]
    return rows.filter(pl.col(CODE).is_null()).select(*kept)
