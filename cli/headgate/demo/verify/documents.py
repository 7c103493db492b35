"""Compares the search app's index, read over plain HTTP, with the expected documents.

The expectation (``headgate.demo.shop.expected_documents``) and the reading share no code with the app. Promises: every
expected document is correct, wrong or missing, and every other one is unexpected. Popularity is a function of the
watermark; if the watermarks of the partitions differ, a document is correct if it is correct at one between them.
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
_IDLE_LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class DocumentCounts:
    """The number of records in the topics at one moment. ``changes``: product changes."""

    events: int
    changes: int
    dead_letters: int
    late: int


@dataclass(frozen=True, slots=True)
class IndexContents:
    """The content of the index and the counts of the topics. ``documents``: by id, in the form of
    ``ExpectedDocument``."""

    counts: DocumentCounts
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
        """Whether all expected documents are correct, there are no others, and every record is accounted for."""
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


def await_idle_sink(rows: Callable[[], int], cuts: Callable[[], int], idle_s: float, check: Callable[[], None]) -> None:
    """Wait until the app has sent no row to the sink for ``idle_s`` seconds and two cuts: it holds no row back any
    more.

    ``rows`` and ``cuts`` return the counts so far; ``check`` raises an error if the run has failed. Raises
    ``HeadgateError`` if rows still arrive after ``_IDLE_LIMIT_S`` seconds.
    """
    deadline = time.monotonic() + _IDLE_LIMIT_S
    last_rows, since_s, last_cuts = rows(), time.monotonic(), cuts()
    while time.monotonic() - since_s < idle_s or cuts() - last_cuts < 2:
        if time.monotonic() > deadline:
            raise HeadgateError(
                f"documents still arrive {_IDLE_LIMIT_S:.0f} s after the last event; they cannot be compared"
            )
        if rows() != last_rows:
            last_rows, since_s, last_cuts = rows(), time.monotonic(), cuts()
        check()
        time.sleep(_POLL_S)


def expectation(shop: ShopSettings, events: int) -> tuple[int, ExpectedDocuments]:
    """Return the number of product changes up to event number ``events``, and the expected documents after both."""
    expected, changes = DocumentsExpectation(PARTITIONS), 0
    for change in products.records(shop, 0, events):
        expected.change(change)
        changes += 1
    for event in records(shop, 0, events):
        expected.event(event)
    return changes, expected.result()


def compare(before: DocumentCounts, index: IndexContents, shop: ShopSettings) -> DocumentsVerifyResult:
    """Compare the documents with the expected ones, and count the output of this run. ``before``: the counts at its
    start."""
    counts = index.counts
    changes, expected = expectation(shop, counts.events)
    expected_ids, actual_ids = expected.documents.keys(), index.documents.keys()
    wrong = {name for name in expected_ids & actual_ids if not expected.may_be(name, index.documents[name])}
    missing, unexpected = expected_ids - actual_ids, actual_ids - expected_ids
    return DocumentsVerifyResult(
        run=DocumentCounts(
            counts.events - before.events,
            counts.changes - before.changes,
            counts.dead_letters - before.dead_letters,
            counts.late - before.late,
        ),
        total=counts,
        total_expected=DocumentCounts(counts.events, changes, expected.dead_letters, expected.late_at_most),
        documents=len(actual_ids),
        expected_documents=len(expected_ids),
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
    return {name: {k: _comparable_value(k, v) for k, v in source.items() if k != "id"} for name, source in documents}


def _comparable_value(column: str, value: object) -> str | int | bool | None:
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
