"""The base class of all documents that people write."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(gt=0)]
NotNegative = Annotated[int, Field(ge=0)]


class Document(BaseModel):
    """A mapping in a settings file. Unknown names are errors; a document is immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)
