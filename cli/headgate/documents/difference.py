"""Compares what two settings documents of an etl app make of one sample: rows that change, appear and vanish.

A row of a lane is known again by the fields of ``id``; rows of a route that leaves one of them out are compared whole.
A dead letter is known again by the place of its record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.console.output import Json
from headgate.documents.rendering import render_value
from headgate.documents.trial import Row, TrialLetter, TrialResult

_MISSING = object()


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """A row of both, and its columns that differ: name to old and new value. ``columns`` None: only one has the row."""

    row: Mapping[str, Json]
    sign: str
    columns: Mapping[str, tuple[Json, Json]] = field(default_factory=dict)


@dataclass
class ResultDifference:
    """The differences by lane, and those of dead letters. ``same``: the number of equal rows."""

    lanes: dict[str, list[ChangedRow]] = field(default_factory=dict)
    letters: list[tuple[TrialLetter | None, TrialLetter | None]] = field(default_factory=list)
    same: int = 0
    id: Sequence[str] = ()

    @property
    def is_empty(self) -> bool:
        """Whether both documents give the same."""
        return not self.letters and not any(self.lanes.values())

    def lines(self, shown: int) -> Iterator[str]:
        """Yield the differences as text, at most ``shown`` of each lane."""
        for lane, changed in self.lanes.items():
            if changed:
                yield f"{lane}: {_counts(changed)}"
                yield from (f"  {_line(one, self.id)}" for one in changed[:shown])
                if len(changed) > shown:
                    yield f"  ... and {len(changed) - shown:,} more (--rows)"
        if self.letters:
            yield f"dead letters: {len(self.letters):,} differ"
            yield from (f"  {_letter_line(old, new)}" for old, new in self.letters[:shown])
            if len(self.letters) > shown:
                yield f"  ... and {len(self.letters) - shown:,} more (--rows)"
        yield f"{self.same:,} row{'s' * (self.same != 1)} the same" + ("; no difference" if self.is_empty else "")

    def json(self) -> Json:
        """Return the differences as JSON."""
        return {
            "same": self.same,
            "lanes": {
                lane: [
                    {
                        "change": {"~": "changed", "+": "appears", "-": "vanishes"}[one.sign],
                        "row": dict(one.row),
                        "columns": {name: {"old": old, "new": new} for name, (old, new) in one.columns.items()},
                    }
                    for one in changed
                ]
                for lane, changed in self.lanes.items()
            },
            "dead_letters": [
                {"old": None if old is None else old.json(), "new": None if new is None else new.json()}
                for old, new in self.letters
            ],
        }


def compare_results(old: TrialResult, new: TrialResult, id_fields: Sequence[str]) -> ResultDifference:
    """Return how the result of the new document differs from that of the old one."""
    found = ResultDifference(id=id_fields)
    for lane in dict.fromkeys((*old.rows, *new.rows)):
        found.lanes[lane] = list(_compare_rows(old.rows.get(lane, ()), new.rows.get(lane, ()), id_fields, found))
    by_place_old, by_place_new = ({one.place: one for one in result.letters} for result in (old, new))
    for place in dict.fromkeys((*by_place_old, *by_place_new)):
        pair = by_place_old.get(place), by_place_new.get(place)
        if None in pair or _said(pair[0]) != _said(pair[1]):
            found.letters.append(pair)
    return found


def _said(letter: TrialLetter | None) -> tuple[str, str] | None:
    return None if letter is None else (letter.code, letter.reason)


def _compare_rows(
    old: Sequence[Row], new: Sequence[Row], id_fields: Sequence[str], found: ResultDifference
) -> Iterator[ChangedRow]:
    """Yield the differences of a lane, in the order of the old rows, then of the new ones."""
    left = _by_id(new, id_fields)
    for row in old:
        same_id = left.get(_identity(row, id_fields))
        if not same_id:
            yield ChangedRow(row, "-")
            continue
        other = same_id.pop(0)
        names = [name for name in dict.fromkeys((*row, *other)) if row.get(name, _MISSING) != other.get(name, _MISSING)]
        if names:
            yield ChangedRow(other, "~", {name: (row.get(name), other.get(name)) for name in names})
        else:
            found.same += 1
    yield from (ChangedRow(row, "+") for rows in left.values() for row in rows)


def _by_id(rows: Sequence[Row], id_fields: Sequence[str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(_identity(row, id_fields), []).append(row)
    return found


def _identity(row: Row, id_fields: Sequence[str]) -> str:
    return repr([row[name] for name in id_fields]) if all(name in row for name in id_fields) else repr(row)


def _counts(changed: Sequence[ChangedRow]) -> str:
    words = {"~": "changed", "+": "appear", "-": "vanish"}
    counts = {word: sum(one.sign == sign for one in changed) for sign, word in words.items()}
    return ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)


def _line(one: ChangedRow, id_fields: Sequence[str]) -> str:
    names = [name for name in id_fields if name in one.row] or [*one.row]
    row = ", ".join(f"{name} = {render_value(one.row[name])}" for name in names)
    columns = [f"{name}: {_shown(old)} -> {_shown(new)}" for name, (old, new) in one.columns.items()]
    return f"{one.sign} {row}" + (f": {'; '.join(columns)}" if columns else "")


def _shown(value: Json) -> str:
    return "null" if value is None else render_value(value)


def _letter_line(old: TrialLetter | None, new: TrialLetter | None) -> str:
    if old is None:
        assert new is not None, "one of both is there"
        return f"+ {new.place}: {new.code}: {render_value(new.reason, 160)}"
    if new is None:
        return f"- {old.place}: {old.code}: {render_value(old.reason, 160)}"
    return f"~ {old.place}: {old.code}: {render_value(old.reason, 100)} -> {new.code}: {render_value(new.reason, 100)}"
