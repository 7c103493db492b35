"""The members of an entry of a map, as columns have them: a map is a list of entries (``streamcore.schema.types``).

No struct of a stream has members of these names, so a list of entries is known by its type.
"""

from __future__ import annotations

from typing import Final

KEY: Final = "@map_key"
VALUE: Final = "@map_value"
