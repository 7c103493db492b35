"""The control records of lists: ``list/<name>``, its head, and ``part/<digest>``, some of its entries.

A part is named by the digest of its bytes, so versions of a list can share parts, and a part never changes. A head
names the parts, which together with the head's own ``entries`` are the list. The store knows which records exist.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Final, Self

import orjson
from pydantic import Field, ValidationError, field_validator, model_validator

from rulecore.documents.base import DocumentModel
from rulecore.documents.control_keys import LIST_KEY, LIST_PART_KEY
from rulecore.documents.scalars import MAX_TEXT, Time
from rulecore.documents.yaml_reader import Json, one_line
from rulecore.errors import ListError
from rulecore.language import ListType
from rulecore.language.ast import ListName, TypeText
from rulecore.language.types import LIST_ENTRY_KINDS
from rulecore.lists.entries import MOST_PARTS, part_bytes, part_digest, to_parts
from streamcore.schema import Kind, Type
from streamcore.settings import describe_error

INLINE_ENTRIES: Final = 200
_MAX_CHARACTERS: Final = 1_000


class ListHead(DocumentModel):
    """One version of a list, without the entries that are in its ``parts``."""

    list: Annotated[ListName, Field(description="Name of the list; rules refer to it.")]
    version: Annotated[
        int, Field(ge=1, lt=2**31), Field(description="Number of this version; a new version has a higher number.")
    ]
    owner: Annotated[
        str, Field(min_length=1, max_length=200), Field(description="Team or person that is responsible for the list.")
    ]
    description: Annotated[
        str, Field(max_length=MAX_TEXT), Field(description="Why the list exists, for its readers.")
    ] = ""
    expires: Annotated[Time | None, Field(description="Time from which on the whole list no longer exists.")] = None
    of: Annotated[TypeText, Field(description="Type of the entries.")]
    value: Annotated[
        TypeText | None,
        Field(description="Type of the value that each entry maps to; absent in a list without values."),
    ] = None
    networks: Annotated[
        bool,
        Field(
            description="Whether the entries are networks, such as 10.0.0.0/8: an address is found as the entry of the "
            "longest prefix that contains it."
        ),
    ] = False
    parts: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")], ...],
        Field(strict=False, max_length=MOST_PARTS),
        Field(description="Digests of the parts that hold further entries."),
    ] = ()
    entries: Annotated[
        tuple[object, ...],
        Field(strict=False, max_length=INLINE_ENTRIES),
        Field(description="Entries: a value, [value, lookup] or [value, lookup, expires]."),
    ] = ()

    @field_validator("of")
    @classmethod
    def _check_entry_type(cls, of: Type) -> Type:
        if of.kind not in LIST_ENTRY_KINDS:
            raise ValueError(f"a list of {of}: its entries are of {', '.join(LIST_ENTRY_KINDS)}")
        return of

    @model_validator(mode="after")
    def _check_networks(self) -> Self:
        if self.networks and self.of.kind is not Kind.STRING:
            raise ValueError(f"a list of networks has texts as entries: of: string, not {self.of}")
        return self

    @field_validator("parts")
    @classmethod
    def _check_distinct(cls, parts: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(parts)) != len(parts):
            raise ValueError("names a part twice")
        return parts

    @property
    def type(self) -> ListType:
        """The type of the list, which rules need."""
        return ListType(self.list, self.of, self.value)

    def canonical(self) -> bytes:
        """Return the bytes of the record, with sorted keys and defaults; ``networks``, which is newer, if it is set."""
        left_out = None if self.networks else {"networks"}
        return orjson.dumps(self.model_dump(mode="json", exclude=left_out), option=orjson.OPT_SORT_KEYS)


def decode_head(value: bytes, max_bytes: int) -> ListHead:
    """Return the head in a record; raise a one-line ``ListError`` if it holds none."""
    parsed = _parse_json(value, max_bytes)
    try:
        return ListHead.model_validate(parsed)
    except ValidationError as error:
        messages = [".".join(map(str, e["loc"])) + ": " + describe_error(e, ListHead) for e in error.errors()]
        raise ListError("; ".join(messages)[:_MAX_CHARACTERS]) from None
    except RecursionError:
        raise ListError("nested too deep") from None


def decode_part(value: bytes, max_bytes: int) -> list[Json]:
    """Return the entries in a part's record, unchecked; raise a one-line ``ListError`` if it holds none."""
    parsed = _parse_json(value, max_bytes)
    entries = parsed.get("entries")
    if not isinstance(entries, list) or len(parsed) != 1:
        raise ListError('a part is {"entries": [...]}')
    return entries


def _parse_json(value: bytes, max_bytes: int) -> dict[str, Json]:
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
    """Return the digest (BLAKE2b, 16 bytes) of a head's canonical bytes."""
    return hashlib.blake2b(canonical, digest_size=16).digest()


def list_records(head: ListHead, entries: list[Json]) -> list[tuple[str, bytes]]:
    """Return keys and values of the control records that publish a list: the parts, then the head."""
    if len(entries) <= INLINE_ENTRIES:
        inline = head.model_copy(update={"entries": tuple(entries), "parts": ()})
        return [(LIST_KEY + head.list, inline.canonical())]
    parts = {part_digest(data): data for data in to_parts(entries)}
    whole = head.model_copy(update={"entries": (), "parts": tuple(sorted(parts))})
    published = [(LIST_PART_KEY + digest, data) for digest, data in sorted(parts.items())]
    return [*published, (LIST_KEY + head.list, whole.canonical())]


__all__ = [
    "INLINE_ENTRIES",
    "ListHead",
    "decode_head",
    "decode_part",
    "head_digest",
    "list_records",
    "part_bytes",
    "part_digest",
]
