"""What all documents that people write are made from."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Document(BaseModel):
    """A mapping with known names only; a value."""

    model_config = ConfigDict(extra="forbid", frozen=True)
