"""A stream of changes for tests of sinks: rows that are inserted, updated and deleted, and what must be left of them.

The expectation is plain Python over the records sent, and knows nothing of the product.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

_START_MS = 1_767_225_600_000
_TEXTS = ("plain", "", 'quoted "text"', "line\nbreak", "tab\tand, comma", "ünïcödé ☃ 𝄞", "\\N", "null")


@dataclass(frozen=True, slots=True)
class Change:
    """One event. ``n`` numbers all changes; the highest of an id counts."""

    id: str
    n: int
    amount: Decimal
    text: str | None
    deleted: bool
    ts: int

    @property
    def value(self) -> bytes:
        """The record."""
        document = {"id": self.id, "n": self.n, "amount": str(self.amount), "text": self.text}
        return json.dumps(document | {"deleted": self.deleted, "ts": self.ts}).encode()

    @property
    def row(self) -> tuple[str, int, Decimal, str | None]:
        """What a table shows of it."""
        return self.id, self.n, self.amount, self.text


def changes(count: int, *, seed: int, first: int = 0, ids: int = 400) -> list[Change]:
    """So many changes, in the order of ``n``, which goes on from ``first``; one in six deletes."""
    chance = random.Random(seed)
    return [
        Change(
            id=f"id-{chance.randrange(ids)}",
            n=n,
            amount=Decimal(chance.randrange(-(10**8), 10**8)).scaleb(-2),
            text=chance.choice((None, *_TEXTS)),
            deleted=chance.random() < 1 / 6,
            ts=_START_MS + n * 10,
        )
        for n in range(first, first + count)
    ]


def latest(sent: Iterable[Change]) -> set[tuple[str, int, Decimal, str | None]]:
    """The rows of a table with a key."""
    last = {change.id: change for change in sent}
    return {change.row for change in last.values() if not change.deleted}


def every(sent: Iterable[Change]) -> list[tuple[str, int, Decimal, str | None]]:
    """The rows of a table without one, by number."""
    return sorted((change.row for change in sent), key=lambda row: row[1])
