"""How much of each property and each campaign a run does: the profile that ``HYPOTHESIS_PROFILE`` names.

``quick`` and ``test`` draw from fixed seeds, ``dev`` and ``nightly`` from new ones. Without a name it is ``test``.
"""

from __future__ import annotations

import os

NAME = os.environ.get("HYPOTHESIS_PROFILE") or "test"

#: What part of a property's examples a profile runs.
_SHARE_OF_EXAMPLES = {"quick": 0.02, "test": 0.07, "nightly": 10.0}
_QUICK_SHARE_OF_CASES = 0.075


def examples(written: int) -> int:
    """Return how many of the examples that its settings name a property draws: at least 2 in ``quick``, else 4."""
    least = 2 if NAME == "quick" else 4
    return max(min(written, least), round(written * _SHARE_OF_EXAMPLES.get(NAME, 1.0)))


def cases(usual: int) -> int:
    """Return how many of its usual cases a test that generates them itself runs: fewer in ``quick``."""
    return round(usual * _QUICK_SHARE_OF_CASES) if NAME == "quick" else usual
