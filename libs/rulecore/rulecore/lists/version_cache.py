"""A version of a list that was taken, and the reading of its entries: once per process, however many shards hold it.

A version that was read is shared through weak references by digest: it lives as long as some shard's store uses it.
Promises: the same bytes give the same entries; reading raises nothing but ``ListError``.
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

_NAME_CHARACTERS = 100


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ListPart:
    """The bytes of a part. All shards of a process hold the same one (``intern_part``)."""

    digest: str
    data: bytes


@dataclass(frozen=True, slots=True, eq=False)
class LiveList:
    """A version that was taken. ``entries`` reads it on first use."""

    head: ListHead
    record: bytes
    parts: tuple[ListPart, ...]
    _read: list[tuple[ListEntries | None, tuple[EntryColumns, ...]]] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Size of the head and the parts."""
        return len(self.record) + sum(len(part.data) for part in self.parts)

    def entries(self) -> ListEntries | None:
        """Return all entries; None when a version accepted once is refused by now (the program has changed)."""
        if not self._read:
            try:
                self.read()
            except ListError:
                self._read.append((None, ()))
        return self._read[0][0]

    def read(self) -> None:
        """Read the entries now; ``ListError`` for one that is none, and for a value that is there twice.

        The parts' columns stay with it, so that the next version reads only the parts that are new.
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
    """Return the part of that digest that some shard of this process holds already, else a new one."""
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
    keys = [key for some in columns for key in some.keys]
    values = [value for some in columns for value in some.looked_up]
    ends = [end for some in columns for end in some.expires_ms]
    entries = ListEntries.of(head.type, keys, values, ends)
    if len(entries.place) != len(keys):
        seen: set[str | int] = set()
        twice = next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ListError(f"{str(twice)[:_NAME_CHARACTERS]!r} is in the list twice")
    return entries
