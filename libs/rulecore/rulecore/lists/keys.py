"""The keys of list entries, and when an entry without an end expires: shared by files and columns of lists."""

from __future__ import annotations

from typing import Final

#: A physical value.
Key = str | int

NEVER_MS: Final = 2**63 - 1
