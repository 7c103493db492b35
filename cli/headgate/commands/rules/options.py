"""What the commands of ``headgate rules`` share: how rules are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.rules_options import DEFAULT_APP

if TYPE_CHECKING:
    from headgate.rulebook import Book


def read(paths: Sequence[Path], streams: Path | None, lists: Path | None = None) -> Book:
    """The rules of these files and folders, or the shipped ones."""
    from headgate.rulebook import read_book, shipped_rules

    return read_book(paths or [shipped_rules(DEFAULT_APP)], streams, lists)
