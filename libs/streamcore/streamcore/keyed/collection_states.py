"""List states and map states: their declaration on a function's class, and the views that its methods use.

A list is a sequence that grows at its end; a map is a mutable mapping. Both have a limit of items
per key and are stored item by item (``streamcore.keyed.collection_table``), so the cost of a change does not grow with
the number of items.
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

#: The items that a list or map holds per key, unless its declaration sets another limit.
DEFAULT_MAX_ITEMS = 10_000


class CollectionState(DeclaredState):
    """The declaration of a list or map: at most ``most`` items per key. ``user_key_type``: None for a list."""

    user_key_type: ValueType | None = None

    def __init__(self, declared: object, most: int, when_full: WhenFull, ttl: Ttl | None) -> None:
        super().__init__(declared, ttl)
        if most < 1:
            raise ConfigError(f"most={most}: a list or map must have room for one value")
        self.most = most
        self.when_full = when_full


class ListState(CollectionState, Generic[T]):
    """A list in order of arrival. A full list drops its oldest element, so ``most=10`` keeps the last ten."""

    def __init__(
        self,
        of: type[T] | ColumnType | None = None,
        *,
        most: int = DEFAULT_MAX_ITEMS,
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
    """The list of the current key. Reading one element counts as a read of all (``Refresh.ON_READ``)."""

    __slots__ = ("_table",)

    def __init__(self, table: CollectionTable) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table.unexpired_items())

    def __iter__(self) -> Iterator[T]:
        return iter([cast("T", value) for _, value in self._table.read_all()])

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        return list(self)[index]

    def append(self, value: T) -> None:
        """Add an element at the end."""
        self._table.append(value)

    def extend(self, values: Iterable[T]) -> None:
        """Add elements at the end."""
        for value in values:
            self._table.append(value)

    def popleft(self) -> T:
        """Remove and return the first element; raise ``IndexError`` if the list is empty."""
        for user_key, item in self._table.unexpired_items().items():
            self._table.remove(user_key)
            return cast("T", item.value)
        raise IndexError("the list is empty")

    def clear(self) -> None:
        """Remove all elements."""
        self._table.clear()


class MapState(CollectionState, Generic[K, T]):
    """A mapping, iterated in the order in which its items were last written (or read, with ``Refresh.ON_READ``)."""

    def __init__(
        self,
        by: type[K],
        of: type[T] | ColumnType | None = None,
        *,
        most: int = DEFAULT_MAX_ITEMS,
        when_full: WhenFull = WhenFull.DROP_OLDEST,
        ttl: Ttl | None = None,
    ) -> None:
        super().__init__(of, most, when_full, ttl)
        if by is float:
            raise ConfigError("a map cannot have float keys, because NaN does not equal itself; use Decimal or int")
        self.user_key_type = value_type_for_state(by)

    def handle(self, storage: CollectionTable) -> MapView[K, T]:
        return MapView(storage)

    @overload
    def __get__(self, function: None, owner: type) -> MapState[K, T]: ...
    @overload
    def __get__(self, function: object, owner: type) -> MapView[K, T]: ...
    def __get__(self, function: object | None, owner: type) -> MapState[K, T] | MapView[K, T]:
        return self if function is None else cast("MapView[K, T]", self.handle_in(function))

    def __set__(self, function: object, values: Mapping[K, T]) -> None:
        view, values = self.handle_in(function), dict(values)
        view.clear()
        view.update(values)

    def __delete__(self, function: object) -> None:
        self.handle_in(function).clear()


class MapView(MutableMapping[K, T]):
    """The map of the current key. ``in`` and ``len`` do not count as a read (``Refresh.ON_READ``)."""

    __slots__ = ("_table",)

    def __init__(self, table: CollectionTable) -> None:
        self._table = table

    def __getitem__(self, user_key: K) -> T:
        value = self._table.read(user_key)
        if value is None:
            raise KeyError(user_key)
        return cast("T", value)

    def __setitem__(self, user_key: K, value: T) -> None:
        self._table.put(self._table.coerce_user_key(user_key), value)

    def __delitem__(self, user_key: K) -> None:
        if user_key not in self._table.unexpired_items():
            raise KeyError(user_key)
        self._table.remove(user_key)

    def __contains__(self, user_key: object) -> bool:
        return user_key in self._table.unexpired_items()

    def __iter__(self) -> Iterator[K]:
        return iter([cast("K", user_key) for user_key in self._table.unexpired_items()])

    def __len__(self) -> int:
        return len(self._table.unexpired_items())

    def items(self) -> Any:
        """Return a copy of the keys and values; counts as a read of all."""
        return dict(self._table.read_all()).items()

    def clear(self) -> None:
        """Remove all items."""
        self._table.clear()
