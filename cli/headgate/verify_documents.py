"""What the search app left in its index, read over plain HTTP, against what must be there.

The expectation (``headgate.local.shop.expected_documents``) and the reading share no code with the app. Promises: every
document that must be there is right, wrong or lost, and every other one is unexpected. Popularity is a function of the
watermark; where the partitions' clocks differ, a document is right if it is so at some watermark between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Final

from headgate.errors import HeadgateError
from headgate.local.shop import products
from headgate.local.shop.expected_documents import DocumentsExpectation, Expected, ExpectedDocuments
from headgate.local.shop.settings import ShopSettings
from headgate.local.shop.stream import records
from headgate.local.workspace import PARTITIONS
from headgate.output import Json

_EXAMPLES: Final = 5
_MONEY: Final = ("price", "revenue_")
_POLL_S: Final = 0.2
_QUIET_LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Mark:
    """Records of the topics at some moment."""

    events: int
    changes: int
    dead_letters: int
    late: int


@dataclass(frozen=True, slots=True)
class Found:
    """``documents``: by id, in the form of ``Expected``."""

    mark: Mark
    documents: Mapping[str, Expected]


@dataclass(frozen=True, slots=True)
class DocumentsVerdict:
    """``run`` counts what this run added, all else is of everything since the shop was made.

    ``uncertain`` documents have more than one right form. ``resurrected``: those of the unexpected that were deleted;
    ``examples``: ids of some that are not as they must be.
    """

    run: Mark
    total: Mark
    total_expected: Mark
    documents: int
    expected_documents: int
    uncertain: int
    lost: int
    unexpected: int
    wrong: int
    resurrected: int
    examples: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Every document there and right, no other one, and every record accounted for."""
        now, expected = self.total, self.total_expected
        told = (now.changes, now.dead_letters) == (expected.changes, expected.dead_letters)
        return told and now.late <= expected.late and not (self.lost or self.unexpected or self.wrong)

    def document(self) -> dict[str, Json]:
        """For programs."""
        expected = asdict(self.total_expected)
        expected["late_at_most"] = expected.pop("late")
        return {
            **asdict(self.run),
            "documents": self.documents,
            "expected_documents": self.expected_documents,
            "lost": self.lost,
            "unexpected": self.unexpected,
            "wrong": self.wrong,
            "resurrected": self.resurrected,
            "examples": list(self.examples),
            "total": {**asdict(self.total), "expected": expected, "uncertain": self.uncertain},
        }


def await_quiet(rows: Callable[[], int], cuts: Callable[[], int], quiet_s: float, check: Callable[[], None]) -> None:
    """Wait until the sink got no row for so long while cuts went on: what was held back for its pace has come.

    ``check`` raises what went wrong meanwhile. ``HeadgateError`` when it does not end.
    """
    deadline = time.monotonic() + _QUIET_LIMIT_S
    seen, since, cut = rows(), time.monotonic(), cuts()
    while time.monotonic() - since < quiet_s or cuts() - cut < 2:
        if time.monotonic() > deadline:
            raise HeadgateError(f"documents still come {_QUIET_LIMIT_S:.0f} s after the last event; nothing to compare")
        if rows() != seen:
            seen, since, cut = rows(), time.monotonic(), cuts()
        check()
        time.sleep(_POLL_S)


def expectation(shop: ShopSettings, events: int) -> tuple[int, ExpectedDocuments]:
    """Of the first so many events and the changes beside them: how many changes, and what must have come of both."""
    expected, changes = DocumentsExpectation(PARTITIONS), 0
    for change in products.records(shop, 0, events):
        expected.change(change)
        changes += 1
    for event in records(shop, 0, events):
        expected.event(event)
    return changes, expected.result()


def compare(before: Mark, found: Found, shop: ShopSettings) -> DocumentsVerdict:
    """The verdict on everything, with the numbers of what came since ``before``."""
    now = found.mark
    changes, expected = expectation(shop, now.events)
    must, there = expected.documents.keys(), found.documents.keys()
    wrong = {name for name in must & there if not expected.may_be(name, found.documents[name])}
    lost, unexpected = must - there, there - must
    return DocumentsVerdict(
        run=Mark(
            now.events - before.events,
            now.changes - before.changes,
            now.dead_letters - before.dead_letters,
            now.late - before.late,
        ),
        total=now,
        total_expected=Mark(now.events, changes, expected.dead_letters, expected.late_at_most),
        documents=len(there),
        expected_documents=len(must),
        uncertain=len(expected.also),
        lost=len(lost),
        unexpected=len(unexpected),
        wrong=len(wrong),
        resurrected=len(unexpected & expected.deleted),
        examples=tuple(sorted(lost | unexpected | wrong)[:_EXAMPLES]),
    )


def as_expected(documents: Iterable[tuple[str, Mapping[str, object]]]) -> dict[str, Expected]:
    """Documents of the server by their ids, money in cents, times in milliseconds. What is unreadable stays as it is,
    and is wrong."""
    return {name: {k: _value(k, v) for k, v in source.items() if k != "id"} for name, source in documents}


def _value(column: str, value: object) -> str | int | bool | None:
    try:
        if column.startswith(_MONEY) and isinstance(value, str | int | Decimal):
            return _cents(Decimal(value))
        if column == "updated_at" and isinstance(value, str):
            return round(datetime.fromisoformat(value).timestamp() * 1_000)
    except (InvalidOperation, ValueError):
        pass
    return value if value is None or isinstance(value, str | int) else str(value)


def _cents(amount: Decimal) -> str | int:
    """A fraction of a cent is no amount."""
    cents = amount * 100
    return int(cents) if cents == int(cents) else str(amount)
