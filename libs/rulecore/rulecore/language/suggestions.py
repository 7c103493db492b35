"""Proposals for a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Collection

_SHOWN_NAMES = 12


def format_list(names: Collection[str], shown: int = _SHOWN_NAMES) -> str:
    """Return the first of them, or that there is none."""
    text = ", ".join(list(names)[:shown]) + (", ..." if len(names) > shown else "")
    return text or "no column"


def suggest(name: str, accepted: list[str], close: list[str], shown: int = _SHOWN_NAMES) -> str:
    """Return the nearest of ``close``, if one is near, and the accepted names."""
    found = difflib.get_close_matches(name[:64], close, n=1)
    meant = f"did you mean {found[0]}? " if found else ""
    return f"{meant}accepted here: {format_list(accepted, shown)}"
