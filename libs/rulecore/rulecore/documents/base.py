"""The base of all parts of a document that a user writes."""

from __future__ import annotations

from typing import ClassVar

import orjson
from pydantic import BaseModel, ConfigDict

from streamcore.compact import compact


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

    def canonical_json(self) -> bytes:
        """Return the document as a control record has it: keys sorted, defaults written out, UTF-8, no blanks."""
        document = self.model_dump(mode="json", by_alias=True)
        return compact(orjson.dumps(document, option=orjson.OPT_SORT_KEYS))
