"""Lists and maps as states: how they are declared, and what they look like in a function's methods.

A list is a sequence that grows at its end; a map is a mutable mapping. Both hold a declared number of values a key and
are kept one by one (``streamcore.keyed.collection_table``), so a change costs what it changes, not what the key holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Generic, TypeVar, cast, overload

from streamcore.errors import ConfigError
from streamcore.keyed.collection_table import CollectionTable, WhenFull
from streamcore.keyed.states import DeclaredState
from streamcore.keyed.ttl import Ttl
from streamcore.keyed.value_types import ColumnType, ValueType, value_type_for_state

T = TypeVar("T")
K = TypeVar("K")

#: Elements or entries that a list or map holds for one key, unless it says otherwise.
MOST = 10_000


class CollectionState(DeclaredState):
    """A state with many values a key, at most ``most``. ``entry_type``: what they are found by; None in a list."""

    entry_type: ValueType | None = None

    def __init__(self, declared: object, most: int, when_full: WhenFull, ttl: Ttl | None) -> None:
        super().__init__(declared, ttl)
        if most < 1:
            raise ConfigError(f"most={most}: a list or map must have room for one value")
        self.most = most
        self.when_full = when_full


class ListState(CollectionState, Generic[T]):
    """Elements in order of arrival. The longest there makes room for a new one, so ``most=10`` keeps the last ten."""

    def __init__(
        self,
        of: type[T] | ColumnType | None = None,
        *,
        most: int = MOST,
        when_full: WhenFull = WhenFull.DROP_OLDEST,
        ttl: Ttl | None = None,
    ) -> None:
        super().__init__(of, most, when_full, ttl)

    def handle(self, storage: CollectionTable) -> ListView[T]:
        return ListView(storage)

    @overload
    def __get__(self, function: None, owner: type) -> ListState[T]: ...
    @overload
    def __get__(self, function: object, owner: type) -> ListView[T]: ...
    def __get__(self, function: object | None, owner: type) -> ListState[T] | ListView[T]:
        return self if function is None else cast("ListView[T]", self.handle_in(function))

    def __set__(self, function: object, values: Iterable[T]) -> None:
        elements, values = self.handle_in(function), list(values)
        elements.clear()
        elements.extend(values)

    def __delete__(self, function: object) -> None:
        self.handle_in(function).clear()


class ListView(Sequence[T]):
    """A list state of the current key. Any look at an element reads them all."""

    __slots__ = ("_entries",)

    def __init__(self, entries: CollectionTable) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries.live())

    def __iter__(self) -> Iterator[T]:
        return iter([cast("T", value) for _, value in self._entries.read_all()])

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        return list(self)[place]

    def append(self, value: T) -> None:
        """Add an element at the end."""
        self._entries.append(value)

    def extend(self, values: Iterable[T]) -> None:
        """Add elements at the end."""
        for value in values:
            self._entries.append(value)

    def popleft(self) -> T:
        """Take out the first element; ``IndexError`` where there is none."""
        for entry, item in self._entries.live().items():
            self._entries.remove(entry)
            return cast("T", item.value)
        raise IndexError("the list is empty")

    def clear(self) -> None:
        """Take out all elements."""
        self._entries.clear()


class MapState(CollectionState, Generic[K, T]):
    """A mapping. Its entries come in the order in which they were last written (or read, if that refreshes them)."""

    def __init__(
        self,
        by: type[K],
        of: type[T] | ColumnType | None = None,
        *,
        most: int = MOST,
        when_full: WhenFull = WhenFull.DROP_OLDEST,
        ttl: Ttl | None = None,
    ) -> None:
        super().__init__(of, most, when_full, ttl)
        if by is float:
            raise ConfigError("a map's entries are not found by float, which NaN does not equal; use Decimal or int")
        self.entry_type = value_type_for_state(by)

    def handle(self, storage: CollectionTable) -> MapView[K, T]:
        return MapView(storage)

    @overload
    def __get__(self, function: None, owner: type) -> MapState[K, T]: ...
    @overload
    def __get__(self, function: object, owner: type) -> MapView[K, T]: ...
    def __get__(self, function: object | None, owner: type) -> MapState[K, T] | MapView[K, T]:
        return self if function is None else cast("MapView[K, T]", self.handle_in(function))

    def __set__(self, function: object, values: Mapping[K, T]) -> None:
        lookup, values = self.handle_in(function), dict(values)
        lookup.clear()
        lookup.update(values)

    def __delete__(self, function: object) -> None:
        self.handle_in(function).clear()


class MapView(MutableMapping[K, T]):
    """A map state of the current key. ``in`` and ``len`` do not count as reading a value."""

    __slots__ = ("_entries",)

    def __init__(self, entries: CollectionTable) -> None:
        self._entries = entries

    def __getitem__(self, entry: K) -> T:
        value = self._entries.read(entry)
        if value is None:
            raise KeyError(entry)
        return cast("T", value)

    def __setitem__(self, entry: K, value: T) -> None:
        self._entries.put(self._entries.coerce_entry(entry), value)

    def __delitem__(self, entry: K) -> None:
        if entry not in self._entries.live():
            raise KeyError(entry)
        self._entries.remove(entry)

    def __contains__(self, entry: object) -> bool:
        return entry in self._entries.live()

    def __iter__(self) -> Iterator[K]:
        return iter([cast("K", entry) for entry in self._entries.live()])

    def __len__(self) -> int:
        return len(self._entries.live())

    def items(self) -> Any:
        """Return the entries and values as they are now."""
        return dict(self._entries.read_all()).items()

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
