"""What to propose for a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Collection

_SHOWN_NAMES = 12


def listed(names: Collection[str], shown: int = _SHOWN_NAMES) -> str:
    """The first of them, or that there is none."""
    text = ", ".join(list(names)[:shown]) + (", ..." if len(names) > shown else "")
    return text or "no column"


def suggest(name: str, accepted: list[str], close: list[str], shown: int = _SHOWN_NAMES) -> str:
    """The nearest of ``close``, if one is near, and what is accepted."""
    found = difflib.get_close_matches(name[:64], close, n=1)
    meant = f"did you mean {found[0]}? " if found else ""
    return f"{meant}accepted here: {listed(accepted, shown)}"
