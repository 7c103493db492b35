"""The control records of lists: ``list/<name>``, its head, and ``part/<digest>``, some of its entries.

A part is named by the digest of its bytes, so it can be read twice, kept, shared by versions, and never be mixed up.
A head names the parts that together with its own ``entries`` are the list. Refuses to know what other records there
are: that is the store's part.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Final

import orjson
from pydantic import Field, ValidationError, field_validator

from rulecore.control_keys import LIST_KEY, LIST_PART_KEY
from rulecore.document import Document
from rulecore.errors import ListError
from rulecore.lang import ListType
from rulecore.lang.tree import ListName, TypeText
from rulecore.lang.types import LISTED
from rulecore.lists.entries import MOST_PARTS, part_bytes, part_digest, to_parts
from rulecore.values import MAX_TEXT, Time
from rulecore.yamldoc import Json, one_line
from streamcore.schema import Type

INLINE_ENTRIES: Final = 200
_SAID_CHARACTERS: Final = 1_000


class Head(Document):
    """One version of a list, but for the entries in ``parts``."""

    list: ListName
    version: Annotated[int, Field(ge=1, lt=2**31)]
    owner: Annotated[str, Field(min_length=1, max_length=200)]
    description: Annotated[str, Field(max_length=MAX_TEXT)] = ""
    expires: Time | None = None
    of: TypeText
    value: TypeText | None = None
    parts: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")], ...], Field(strict=False, max_length=MOST_PARTS)
    ] = ()
    entries: Annotated[tuple[object, ...], Field(strict=False, max_length=INLINE_ENTRIES)] = ()

    @field_validator("of")
    @classmethod
    def _listed(cls, of: Type) -> Type:
        if of.kind not in LISTED:
            raise ValueError(f"a list of {of}: its entries are of {', '.join(LISTED)}")
        return of

    @field_validator("parts")
    @classmethod
    def _once(cls, parts: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(parts)) != len(parts):
            raise ValueError("names a part twice")
        return parts

    @property
    def type(self) -> ListType:
        """What rules have to know of it."""
        return ListType(self.list, self.of, self.value)

    def canonical(self) -> bytes:
        """Its record: keys sorted, defaults written out."""
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)


def decode_head(value: bytes, max_bytes: int) -> Head:
    """The head in a record; ``ListError`` says in one line why there is none."""
    parsed = _json(value, max_bytes)
    try:
        return Head.model_validate(parsed)
    except ValidationError as error:
        said = [".".join(map(str, e["loc"])) + ": " + e["msg"] for e in error.errors(include_url=False)]
        raise ListError("; ".join(said)[:_SAID_CHARACTERS]) from None
    except RecursionError:
        raise ListError("nested too deep") from None


def decode_part(value: bytes, max_bytes: int) -> list[Json]:
    """The entries in a part's record, as they are written."""
    parsed = _json(value, max_bytes)
    entries = parsed.get("entries")
    if not isinstance(entries, list) or len(parsed) != 1:
        raise ListError('a part is {"entries": [...]}')
    return entries


def _json(value: bytes, max_bytes: int) -> dict[str, Json]:
    if len(value) > max_bytes:
        raise ListError(f"the record has {len(value)} bytes, at most {max_bytes} are read")
    try:
        parsed = orjson.loads(value)
    except (ValueError, RecursionError) as error:
        raise ListError(f"not JSON: {one_line(error)}") from None
    if not isinstance(parsed, dict):
        raise ListError("a record of a list is a JSON object")
    return parsed


def head_digest(canonical: bytes) -> bytes:
    """What tells two versions of heads apart."""
    return hashlib.blake2b(canonical, digest_size=16).digest()


def records_of(head: Head, entries: list[Json]) -> list[tuple[str, bytes]]:
    """Keys and values of the control records that publish a list with these entries: the parts, then the head."""
    if len(entries) <= INLINE_ENTRIES:
        inline = head.model_copy(update={"entries": tuple(entries), "parts": ()})
        return [(LIST_KEY + head.list, inline.canonical())]
    parts = {part_digest(data): data for data in to_parts(entries)}
    whole = head.model_copy(update={"entries": (), "parts": tuple(sorted(parts))})
    published = [(LIST_PART_KEY + digest, data) for digest, data in sorted(parts.items())]
    return [*published, (LIST_KEY + head.list, whole.canonical())]


__all__ = [
    "INLINE_ENTRIES",
    "Head",
    "decode_head",
    "decode_part",
    "head_digest",
    "part_bytes",
    "part_digest",
    "records_of",
]
