"""Compares the search app's index, read over plain HTTP, with the expected documents.

The expectation (``headgate.demo.shop.expected_documents``) and the reading share no code with the app. Promises: every
expected document is right, wrong or missing, and every other one is unexpected. Popularity is a function of the
watermark; where the partitions' clocks differ, a document is right if it is so at some watermark between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Final

from headgate.demo.shop import products
from headgate.demo.shop.expected_documents import DocumentsExpectation, ExpectedDocument, ExpectedDocuments
from headgate.demo.shop.settings import ShopSettings
from headgate.demo.shop.stream import records
from headgate.demo.verify.summary import VerifySummary
from headgate.demo.workspace import PARTITIONS
from headgate.errors import HeadgateError

_EXAMPLES: Final = 5
_MONEY: Final = ("price", "revenue_")
_POLL_S: Final = 0.2
_QUIET_LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class DocumentCounts:
    """Records of the topics at some moment."""

    events: int
    changes: int
    dead_letters: int
    late: int


@dataclass(frozen=True, slots=True)
class IndexContents:
    """``documents``: by id, in the form of ``ExpectedDocument``."""

    mark: DocumentCounts
    documents: Mapping[str, ExpectedDocument]


@dataclass(frozen=True, slots=True)
class DocumentsVerifyResult:
    """``run`` counts the output of this run, all other counts cover everything since the shop was created.

    ``uncertain`` documents have more than one correct form. ``resurrected``: unexpected documents that were deleted;
    ``examples``: ids of some incorrect documents.
    """

    run: DocumentCounts
    total: DocumentCounts
    total_expected: DocumentCounts
    documents: int
    expected_documents: int
    uncertain: int
    missing: int
    unexpected: int
    wrong: int
    resurrected: int
    examples: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Every document there and right, no other one, and every record accounted for."""
        now, expected = self.total, self.total_expected
        accounted_for = (now.changes, now.dead_letters) == (expected.changes, expected.dead_letters)
        return accounted_for and now.late <= expected.late and not (self.missing or self.unexpected or self.wrong)

    def summary(self) -> VerifySummary:
        """Return the result in the schema of all services."""
        expected = asdict(self.total_expected)
        expected["late_at_most"] = expected.pop("late")
        return VerifySummary(
            passed=self.passed,
            events=self.run.events,
            produced=self.documents,
            expected=self.expected_documents,
            missing=self.missing,
            unexpected=self.unexpected,
            duplicated=0,
            wrong=self.wrong,
            dead_letters=self.total.dead_letters,
            details={
                "run": asdict(self.run),
                "total": {**asdict(self.total), "expected": expected},
                "uncertain": self.uncertain,
                "resurrected": self.resurrected,
                "examples": list(self.examples),
            },
        )


def await_quiet(rows: Callable[[], int], cuts: Callable[[], int], quiet_s: float, check: Callable[[], None]) -> None:
    """Wait until the sink has got no row for ``quiet_s`` seconds while cuts went on: no row is held back any more.

    ``check`` raises any error of the meantime. ``HeadgateError`` when the rows do not stop.
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
    """Return the number of changes beside the first so many events, and the expected result of both."""
    expected, changes = DocumentsExpectation(PARTITIONS), 0
    for change in products.records(shop, 0, events):
        expected.change(change)
        changes += 1
    for event in records(shop, 0, events):
        expected.event(event)
    return changes, expected.result()


def compare(before: DocumentCounts, found: IndexContents, shop: ShopSettings) -> DocumentsVerifyResult:
    """Compare everything; count the output that arrived since ``before``."""
    now = found.mark
    changes, expected = expectation(shop, now.events)
    must, there = expected.documents.keys(), found.documents.keys()
    wrong = {name for name in must & there if not expected.may_be(name, found.documents[name])}
    missing, unexpected = must - there, there - must
    return DocumentsVerifyResult(
        run=DocumentCounts(
            now.events - before.events,
            now.changes - before.changes,
            now.dead_letters - before.dead_letters,
            now.late - before.late,
        ),
        total=now,
        total_expected=DocumentCounts(now.events, changes, expected.dead_letters, expected.late_at_most),
        documents=len(there),
        expected_documents=len(must),
        uncertain=len(expected.also),
        missing=len(missing),
        unexpected=len(unexpected),
        wrong=len(wrong),
        resurrected=len(unexpected & expected.deleted),
        examples=tuple(sorted(missing | unexpected | wrong)[:_EXAMPLES]),
    )


def comparable_fields(documents: Iterable[tuple[str, Mapping[str, object]]]) -> dict[str, ExpectedDocument]:
    """Return the server's documents by id, money in cents, times in milliseconds. An unreadable value stays unchanged
    and counts as wrong."""
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
    """Convert an amount to cents; keep text where a fraction of a cent is left."""
    cents = amount * 100
    return int(cents) if cents == int(cents) else str(amount)
