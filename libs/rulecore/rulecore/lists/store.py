"""The list store: all lists of an app, immutable; a control record creates the next store.

A list is published as parts (its entries) and then a head, which names the parts. A head with a missing part is
rejected, and the previous version of the list stays. The types of a list never change, so rules that use it stay valid.

``apply`` is a pure function of the store and the record, and raises for no record. A store restored from ``records()``
behaves as the original. Entries are decoded once per process and version, for all shards, on first use; restoring
decodes only heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import orjson

from rulecore.documents.control_keys import LIST_KEY, LIST_PART_KEY, parse_key
from rulecore.documents.status import RuleStatus, StatusKind, Subject
from rulecore.errors import ListError
from rulecore.language import ListType
from rulecore.lists.content import ListContent
from rulecore.lists.records import (
    ListHead,
    decode_head,
    part_digest,
)
from rulecore.lists.version_cache import ListPart, LiveList, intern_part
from rulecore.settings import ListLimits
from streamcore.state import KeyValueTable

_UNUSED = "unused"  # the key of the stored order of unused parts
_MAX_NAMED = 3  # rules or parts in a message
_MAX_KEY_CHARACTERS = 100  # in a message


@dataclass(frozen=True, slots=True, eq=False)
class ListStore:
    """All lists by name and all parts by digest. ``unused``: digests of the parts that no list uses, oldest first."""

    limits: ListLimits
    lists: Mapping[str, LiveList]
    parts: Mapping[str, ListPart]
    unused: tuple[str, ...] = ()
    _types: list[Mapping[str, ListType]] = field(default_factory=list, repr=False)

    @classmethod
    def empty(cls, limits: ListLimits | None = None) -> ListStore:
        """Return a store without lists."""
        return cls(limits or ListLimits(), MappingProxyType({}), MappingProxyType({}))

    @classmethod
    def restore(cls, records: Iterable[tuple[str, bytes]], limits: ListLimits | None = None) -> ListStore:
        """Return the store whose ``records()`` these are. Invalid records are omitted."""
        rows = dict(records)
        parts = {k.removeprefix(LIST_PART_KEY): v for k, v in rows.items() if k.startswith(LIST_PART_KEY)}
        known = {digest: intern_part(digest, data) for digest, data in parts.items()}
        lists: dict[str, LiveList] = {}
        for key, value in rows.items():
            if key.startswith(LIST_KEY):
                try:
                    head = decode_head(value, len(value))
                    lists[head.list] = LiveList(head, value, tuple(known[digest] for digest in head.parts))
                except (ListError, KeyError):
                    continue
        used = {digest for live in lists.values() for digest in live.head.parts}
        order = dict.fromkeys([*orjson.loads(rows.get(_UNUSED, b"[]")), *sorted(known)])
        unused = tuple(digest for digest in order if digest in known and digest not in used)
        return cls(limits or ListLimits(), MappingProxyType(lists), MappingProxyType(known), unused)

    def records(self) -> Iterator[tuple[str, bytes]]:
        """Yield the rows to store: heads and parts under their control keys, and the order of unused parts."""
        for name, live in self.lists.items():
            yield LIST_KEY + name, live.record
        for digest, part in self.parts.items():
            yield LIST_PART_KEY + digest, part.data
        yield _UNUSED, orjson.dumps(self.unused)

    def types(self) -> Mapping[str, ListType]:
        """Return the types of all lists, including expired ones, by name."""
        if not self._types:
            self._types.append(MappingProxyType({name: live.head.type for name, live in self.lists.items()}))
        return self._types[0]

    def contents(self, clock_ms: int) -> Mapping[str, ListContent]:
        """Return the contents of the lists at this time, by name, without expired lists."""
        return _Contents(self.lists, clock_ms)

    def apply(
        self, key: str, value: bytes | None, users: Callable[[str], Sequence[str]] = lambda _: ()
    ) -> tuple[ListStore, RuleStatus]:
        """Return the store after a control record of a list or part, and its status, without partition and offset.

        ``users``: returns the ids of the rules that use a list, which then cannot be deleted.
        """
        subject, name = parse_key(key)
        version = None
        kind = StatusKind.DELETED if value is None else StatusKind.ACCEPTED
        try:
            if key.startswith(LIST_PART_KEY):
                store = self._without_part(name) if value is None else self._with_part(name, value)
            elif subject is not Subject.LIST:
                raise ListError(f"the key of a list's record begins with {LIST_KEY} or {LIST_PART_KEY}")
            elif value is None:
                store = self._without_list(name, users)
            else:
                head = decode_head(value, self.limits.record_bytes)
                version = head.version
                store = self._with_list(key, head)
        except ListError as error:
            return self, RuleStatus(name, version, StatusKind.REJECTED, str(error), 0, 0, 0, subject)
        return store, RuleStatus(name, version, kind, None, 0, 0, 0, subject)

    # --- parts --------------------------------------------------------------------------------------------------

    def _with_part(self, digest: str, data: bytes) -> ListStore:
        if len(data) > self.limits.record_bytes:
            raise ListError(f"the part has {len(data)} bytes, at most {self.limits.record_bytes} are read")
        if part_digest(data) != digest:
            raise ListError(f"the part's bytes have the digest {part_digest(data)}, its key has another")
        if digest in self.parts:
            return self
        known = {**self.parts, digest: intern_part(digest, data)}
        return self._with_lists(self.lists, known, (*self.unused, digest))

    def _without_part(self, digest: str) -> ListStore:
        if digest in self.parts and digest not in self.unused:
            using = [name for name, live in self.lists.items() if digest in live.head.parts]
            raise ListError(f"list {using[0]} uses this part")
        known = {d: part for d, part in self.parts.items() if d != digest}
        return self._with_lists(self.lists, known, tuple(d for d in self.unused if d != digest))

    def _with_lists(
        self, lists: Mapping[str, LiveList], known: Mapping[str, ListPart], unused: Sequence[str]
    ) -> ListStore:
        """Return the store with these lists and parts, without the oldest unused parts above the limits."""
        kept, count, size = [], 0, 0
        for digest in reversed(unused):
            count, size = count + 1, size + len(known[digest].data)
            if count > self.limits.unused_parts or size > self.limits.unused_bytes:
                break
            kept.append(digest)
        dropped = set(unused).difference(kept)
        parts = {d: part for d, part in known.items() if d not in dropped} if dropped else dict(known)
        return replace(
            self,
            lists=MappingProxyType(dict(lists)),
            parts=MappingProxyType(parts),
            unused=tuple(reversed(kept)),
            _types=[],
        )

    # --- heads --------------------------------------------------------------------------------------------------

    def _with_list(self, key: str, head: ListHead) -> ListStore:
        record, live = head.canonical(), self.lists.get(head.list)
        if live is not None and live.record == record:
            return self
        self._check(key, head, live)
        parts = tuple(self.parts[digest] for digest in head.parts)
        updated = LiveList(head, record, parts)
        self._check_size(updated, live)
        updated.read()
        self._check_count(updated)
        return self._replace_lists({**self.lists, head.list: updated}, live, head.parts)

    def _check(self, key: str, head: ListHead, live: LiveList | None) -> None:
        if key != LIST_KEY + head.list:
            raise ListError(f"the record's key is {key[:_MAX_KEY_CHARACTERS]!r} and its list {head.list!r}")
        if live is None and len(self.lists) >= self.limits.lists:
            raise ListError(f"there are {len(self.lists)} lists, which is the limit; delete one first")
        if live is not None and head.version <= live.head.version:
            raise ListError(f"version {head.version} is not above the live version {live.head.version}; raise it")
        if live is not None and head.type != live.head.type:
            before = f"{live.head.of}" + (f" with {live.head.value}" if live.head.value else "")
            raise ListError(f"the list is of {before}; its types cannot change, so publish it under another name")
        if missing := [digest for digest in head.parts if digest not in self.parts]:
            shown = ", ".join(missing[:_MAX_NAMED]) + (", ..." if len(missing) > _MAX_NAMED else "")
            raise ListError(f"{len(missing)} parts are missing ({shown}); publish the parts first")

    def _check_count(self, updated: LiveList) -> None:
        entries = updated.entries()
        count = 0 if entries is None else len(entries.numbers)
        if count > self.limits.entries:
            raise ListError(f"the list has {count} entries, at most {self.limits.entries}")

    def _check_size(self, updated: LiveList, live: LiveList | None) -> None:
        others = sum(other.bytes for other in self.lists.values() if other is not live)
        if others + updated.bytes > self.limits.total_bytes:
            raise ListError(f"all lists together would have more than {self.limits.total_bytes} bytes")

    def _without_list(self, name: str, users: Callable[[str], Sequence[str]]) -> ListStore:
        live = self.lists.get(name)
        if live is None:
            return self
        if rules := users(name):
            shown = ", ".join(list(rules)[:_MAX_NAMED]) + (", ..." if len(rules) > _MAX_NAMED else "")
            raise ListError(f"{len(rules)} rules use this list ({shown}); change them first")
        return self._replace_lists({other: kept for other, kept in self.lists.items() if other != name}, live, ())

    def _replace_lists(self, lists: Mapping[str, LiveList], before: LiveList | None, now: Sequence[str]) -> ListStore:
        """Replace the lists; parts that only the previous version used become the newest unused parts."""
        used = {digest for live in lists.values() for digest in live.head.parts} if before else set(now)
        freed = [digest for digest in (before.head.parts if before else ()) if digest not in used]
        return self._with_lists(lists, self.parts, (*(d for d in self.unused if d not in used), *freed))


@dataclass(frozen=True, slots=True)
class _Contents(Mapping[str, ListContent]):
    """The contents of lists by name, decoded on access."""

    lists: Mapping[str, LiveList]
    clock_ms: int

    def __getitem__(self, name: str) -> ListContent:
        live = self.lists[name]
        entries = live.entries()
        if entries is None or (live.head.expires is not None and live.head.expires <= self.clock_ms):
            raise KeyError(name)
        return ListContent(entries, self.clock_ms)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.lists if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def save(store: ListStore, table: KeyValueTable) -> None:
    """Write the store's ``records()`` to the table. Unchanged rows are not written again."""
    rows = dict(store.records())
    for key in [key for key, _ in table if key not in rows]:
        table.put(key, None)
    for key, value in rows.items():
        table.put(key, value)


__all__ = ["ListPart", "ListStore", "LiveList", "save"]
