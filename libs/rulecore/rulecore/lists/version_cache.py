"""Reads the entries of accepted versions of lists, once per process for all its shards.

Weak references by digest share what was read, as long as the store of some shard uses it. Equal bytes give equal
entries. Reading raises only ``ListError``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from rulecore.errors import ListError
from rulecore.language import ListType
from rulecore.lists.content import ListEntries
from rulecore.lists.entries import EntryColumns, read_entries
from rulecore.lists.records import ListHead, decode_part, head_digest

_MAX_VALUE_CHARACTERS = 100


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ListPart:
    """The bytes of a part. The shards of a process share one object per digest (``intern_part``)."""

    digest: str
    data: bytes


@dataclass(frozen=True, slots=True, eq=False)
class LiveList:
    """An accepted version of a list. The first call of ``entries`` reads its entries."""

    head: ListHead
    record: bytes
    parts: tuple[ListPart, ...]
    _read: list[tuple[ListEntries | None, tuple[EntryColumns, ...]]] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """The size of the head and the parts, in bytes."""
        return len(self.record) + sum(len(part.data) for part in self.parts)

    def entries(self) -> ListEntries | None:
        """Return all entries; None if they cannot be read, since another version of the program accepted them."""
        if not self._read:
            try:
                self.read()
            except ListError:
                self._read.append((None, ()))
        return self._read[0][0]

    def read(self) -> None:
        """Read the entries; raise ``ListError`` for an invalid entry, and for a value that occurs twice.

        The columns of the parts are kept with the entries, so that the next version reads only its new parts.
        """
        columns = tuple(_columns(part, self.head.type) for part in self.parts)
        digest = head_digest(self.record)
        entries = _ENTRIES.get(digest)
        if entries is None:
            inline = read_entries(self.head.entries, self.head.type)
            _ENTRIES[digest] = entries = _join_parts(self.head, (*columns, inline))
        self._read.append((entries, columns))


_PARTS: WeakValueDictionary[str, ListPart] = WeakValueDictionary()
_COLUMNS: WeakValueDictionary[tuple[str, ListType], EntryColumns] = WeakValueDictionary()
_ENTRIES: WeakValueDictionary[bytes, ListEntries] = WeakValueDictionary()


def intern_part(digest: str, data: bytes) -> ListPart:
    """Return the part with that digest that a shard of this process already uses, else a new one."""
    part = _PARTS.get(digest)
    if part is None:
        _PARTS[digest] = part = ListPart(digest, data)
    return part


def _columns(part: ListPart, kind: ListType) -> EntryColumns:
    columns = _COLUMNS.get((part.digest, kind))
    if columns is None:
        try:
            columns = read_entries(decode_part(part.data, len(part.data)), kind)
        except ListError as error:
            raise ListError(f"part {part.digest}: {error}") from None
        _COLUMNS[part.digest, kind] = columns
    return columns


def _join_parts(head: ListHead, columns: Sequence[EntryColumns]) -> ListEntries:
    """Return the entries of all columns; raise ``ListError`` for a value that occurs twice."""
    keys = [key for part in columns for key in part.keys]
    values = [value for part in columns for value in part.lookup_values]
    ends = [end for part in columns for end in part.expires_ms]
    entries = ListEntries.of(head.type, keys, values, ends, of_networks=head.networks)
    if len(entries.numbers) != len(keys):
        seen: set[str | int] = set()
        twice = next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ListError(f"{str(twice)[:_MAX_VALUE_CHARACTERS]!r} is in the list twice")
    return entries
