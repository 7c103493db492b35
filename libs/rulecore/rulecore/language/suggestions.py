"""Suggestions in the error message for an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Collection

_SHOWN_NAMES = 12


def format_list(names: Collection[str], shown: int = _SHOWN_NAMES) -> str:
    """Return the first ``shown`` names with commas between them; "no column" if there are none."""
    text = ", ".join(list(names)[:shown]) + (", ..." if len(names) > shown else "")
    return text or "no column"


def suggest(name: str, accepted: list[str], close: list[str], shown: int = _SHOWN_NAMES) -> str:
    """Return a hint: the name in ``close`` that is most similar to ``name``, if any, and the first accepted names."""
    similar = difflib.get_close_matches(name[:64], close, n=1)
    meant = f"did you mean {similar[0]}? " if similar else ""
    return f"{meant}accepted here: {format_list(accepted, shown)}"
