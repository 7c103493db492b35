"""The text of a trial's result: a table for each route, the dead letters by code, and the counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import orjson

from headgate.console.tables import table
from rulecore.printable import in_one_line

if TYPE_CHECKING:
    from headgate.console.output import Json
    from headgate.documents.trial import Row, TrialResult

_CELL = 28
_REASON = 160


def render_value(value: Json, width: int = _CELL) -> str:
    """Return a value as a cell: text as it is, null as nothing."""
    text = value if isinstance(value, str) else "" if value is None else orjson.dumps(value).decode()
    text = in_one_line(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def render_result(result: TrialResult, shown: int) -> Iterator[str]:
    """Yield the lines of a result, with the first ``shown`` rows of each lane and letters of each code."""
    for lane, rows in result.rows.items():
        yield f"{lane}: {_counted(len(rows), 'row')}"
        yield from (f"  {line}" for line in _table(rows[:shown]))
        if len(rows) > shown:
            yield f"  ... and {len(rows) - shown:,} more (--rows)"
    codes = Counter(letter.code for letter in result.letters)
    yield f"dead letters: {len(result.letters):,}"
    for code, count in codes.most_common():
        yield f"  {code}: {count:,}"
        for letter in [one for one in result.letters if one.code == code][:shown]:
            place = f"{letter.place}: " if letter.place else ""
            yield f"    {place}{in_one_line(letter.reason)[:_REASON]}"
        if count > shown:
            yield f"    ... and {count - shown:,} more (--rows)"
    rows_in_all = sum(map(len, result.rows.values()))
    more = "".join(f", {word}: {count:,}" for word, count in result.counted.items())
    yield (
        f"{_counted(result.records, 'record')}: {_counted(rows_in_all, 'row')}, "
        f"{_counted(len(result.letters), 'dead letter')}{more}"
    )


def _table(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    names = list(dict.fromkeys(name for row in rows for name in row))
    return table(names, [[render_value(row.get(name)) for name in names] for row in rows])


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
