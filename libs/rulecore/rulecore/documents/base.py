"""The base of all parts of a document that a user writes."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class DocumentModel(BaseModel):
    """An immutable part of a document, without coercion of types and unknown entries.

    pydantic builds a class at its first use, since most are used only inside a larger model, which builds them itself.
    """

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        revalidate_instances="never",
        validate_by_name=False,
        defer_build=True,
    )

    #: Entries that a document may have beside the fields, which a validator turns into fields.
    accepted_entries: ClassVar[tuple[str, ...]] = ()
