"""The base of all parts of a document that a user writes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class DocumentModel(BaseModel):
    """No coercion, no unknown entries, no change after reading. Built when first used: most parts of documents are
    only ever read as parts of a whole, which builds them itself."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        revalidate_instances="never",
        validate_by_name=False,
        defer_build=True,
    )
