"""What all classes of settings share. A class of settings is a pydantic dataclass that describes its fields."""

from __future__ import annotations

from pydantic import ConfigDict

#: Settings classes reject unknown names, and their errors do not show the rejected value, which may be a secret.
STRICT = ConfigDict(extra="forbid", hide_input_in_errors=True)
