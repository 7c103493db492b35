"""How much of each property and each campaign a run does: the profile that ``HYPOTHESIS_PROFILE`` names.

``quick`` and ``test`` draw from fixed seeds, ``dev`` and ``nightly`` from new ones. Without a name it is ``test``.
"""

from __future__ import annotations

import os

NAME = os.environ.get("HYPOTHESIS_PROFILE") or "test"

#: What part of a property's examples a profile runs.
_SHARE_OF_EXAMPLES = {"quick": 0.05, "test": 0.4, "nightly": 10.0}


def examples(written: int, times: int) -> int:
    """Return how many examples a property draws in this profile: its share, and at least 5.

    ``written``: those of its settings. ``times``: how many tests it is, one for each value of its parameters. One that
    is several tests draws at least 3 for each in ``quick``.
    """
    least = 3 if NAME == "quick" and times > 1 else 5
    return max(min(written, least), round(written * _SHARE_OF_EXAMPLES.get(NAME, 1.0)))


def count(usual: int) -> int:
    """Return how many cases a test that generates its own runs: ``quick`` an eighth of the usual, as of examples."""
    return usual // 8 if NAME == "quick" else usual
