"""Counts dead letters by their reason code, for the live views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from streamcore.kafka.readers import Record

_CODES: Final = 200
_SHOWN: Final = 3
_OTHERS: Final = "others"


class ReasonCounts:
    """Dead letters by code; beyond ``_CODES`` codes under one name, because a sink has those of its server."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of dead letters of each code."""
        return self._counts

    def add(self, record: Record) -> None:
        """Count a dead letter."""
        code = (record.header("reason_code") or b"").decode("utf-8", "replace")
        self._counts[code if code in self._counts or len(self._counts) < _CODES else _OTHERS] += 1

    def most(self) -> str:
        """Return the most frequent codes with their counts, as one line; empty without dead letters."""
        return ", ".join(f"{code} {count:,}" for code, count in self._counts.most_common(_SHOWN))
