"""What entries of lists are known by, and when one without an end expires: what files and columns of lists agree on."""

from __future__ import annotations

from typing import Final

#: A physical value.
Key = str | int

NEVER_MS: Final = 2**63 - 1
