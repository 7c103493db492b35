"""The type of the keys of list entries, and the expiry time of entries that never expire."""

from __future__ import annotations

from typing import Final

#: The key of an entry, as a physical value.
Key = str | int

NEVER_MS: Final = 2**63 - 1
