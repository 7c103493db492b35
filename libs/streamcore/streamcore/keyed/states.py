"""The states that a keyed function declares on its class, and their form in its methods.

::

    class Velocity(ProcessFunction):
        total = ValueState(int, default=0)                      # self.total += 1; del self.total
        recent = ListState(float, most=10)                      # self.recent.append(2.5); for x in self.recent
        seen = MapState(str, int, ttl=Ttl(60_000))              # self.seen["a"] = 1; "a" in self.seen
        best = ReducingState(max, int)                          # self.best.add(3); self.best.value
        mean = AggregatingState((0, 0.0), add=..., result=...)  # self.mean.add(2.5); self.mean.value

Each is about the key of the event or timer at hand. Values are immutable (``streamcore.keyed.value_codec``), so a
change is
always a write. None is never a value: an empty state answers it, and writing it to a value state clears it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast, overload

from streamcore.errors import ConfigError
from streamcore.keyed.collection_table import CollectionTable
from streamcore.keyed.ttl import Ttl
from streamcore.keyed.value_codec import ValueTypeMismatch
from streamcore.keyed.value_state import ValueCell
from streamcore.keyed.value_types import ColumnType, ValueType, value_type_for_state

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")


class DeclaredState(ABC):
    """A state as declared. ``value_type``: the values it takes."""

    def __init__(self, declared: object, ttl: Ttl | None) -> None:
        self.value_type: ValueType = value_type_for_state(declared)
        self.ttl = ttl
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def attach(self, function: object, storage: ValueCell | CollectionTable) -> None:
        """Give a function the states that its methods use."""
        vars(function)[self.name] = self.handle(storage)

    @abstractmethod
    def handle(self, storage: Any) -> object:
        """Return the object that the function's methods use for the stored values."""

    def handle_in(self, function: object) -> Any:
        """Return the object that ``attach`` put into the function."""
        try:
            return function.__dict__[self.name]
        except KeyError:
            raise LookupError(f"state {self.name} is there only in methods that an operator calls") from None


class SingleValueState(DeclaredState):
    """A state with one value a key."""


class ValueState(SingleValueState, Generic[T]):
    """One value. Reading gives ``default`` where there is none.

    ``of``: int, float, bool, str, datetime or a Polars type are kept in a column of that type; Decimal, bytes, tuple, a
    NamedTuple class or nothing, in binary form. Left out, it is the type of the default.
    """

    @overload
    def __init__(self: ValueState[T], of: type[T], *, default: T, ttl: Ttl | None = None) -> None: ...
    @overload
    def __init__(self: ValueState[T | None], of: type[T], *, ttl: Ttl | None = None) -> None: ...
    @overload
    def __init__(self: ValueState[T], *, default: T, ttl: Ttl | None = None) -> None: ...
    @overload
    def __init__(
        self: ValueState[Any], of: ColumnType | None = None, *, default: Any = None, ttl: Ttl | None = None
    ) -> None: ...
    def __init__(self, of: Any = None, *, default: Any = None, ttl: Ttl | None = None) -> None:
        super().__init__(type(default) if of is None and default is not None else of, ttl)
        self.default = _coerced_default(self.value_type, default)

    def handle(self, storage: ValueCell) -> ValueCell:
        return storage

    @overload
    def __get__(self, function: None, owner: type) -> ValueState[T]: ...
    @overload
    def __get__(self, function: object, owner: type) -> T: ...
    def __get__(self, function: object | None, owner: type) -> ValueState[T] | T:
        if function is None:
            return self
        try:
            cell = function.__dict__[self.name]
        except KeyError:
            cell = self.handle_in(function)  # raises an error that explains
        value = cell.values[cell.scope.slot] if cell.ttl is None else cell.get()  # without a call: most reads
        return self.default if value is None else value  # type: ignore[no-any-return]  # what was fitted

    def __set__(self, function: object, value: T | None) -> None:
        self.handle_in(function).set(value)

    def __delete__(self, function: object) -> None:
        self.handle_in(function).set(None)


class ReducingState(SingleValueState, Generic[T]):
    """The added values, combined into one by ``reduce(value, added)``, for example ``max``."""

    def __init__(
        self, reduce: Callable[[T, T], T], of: type[T] | ColumnType | None = None, *, ttl: Ttl | None = None
    ) -> None:
        super().__init__(of, ttl)
        self.reduce = reduce

    def handle(self, storage: ValueCell) -> ReducingView[T]:
        return ReducingView(storage, self.reduce)

    @overload
    def __get__(self, function: None, owner: type) -> ReducingState[T]: ...
    @overload
    def __get__(self, function: object, owner: type) -> ReducingView[T]: ...
    def __get__(self, function: object | None, owner: type) -> ReducingState[T] | ReducingView[T]:
        return self if function is None else cast("ReducingView[T]", self.handle_in(function))

    def __set__(self, function: object, value: object) -> None:
        raise AttributeError(f"state {self.name} takes values by self.{self.name}.add(value)")

    def __delete__(self, function: object) -> None:
        self.handle_in(function).clear()


class ReducingView(Generic[T]):
    """A reducing state of the current key."""

    __slots__ = ("_cell", "_reduce")

    def __init__(self, cell: ValueCell, reduce: Callable[[T, T], T]) -> None:
        self._cell = cell
        self._reduce = reduce

    @property
    def value(self) -> T | None:
        """Return the combination of all added values; None before the first."""
        return cast("T | None", self._cell.get())

    def add(self, value: T) -> None:
        """Combine one more value."""
        before = self._cell.get()
        self._cell.set(
            value if before is None else self._reduce(cast("T", before), cast("T", self._cell.coerce(value)))
        )

    def clear(self) -> None:
        """Forget all."""
        self._cell.set(None)


class AggregatingState(SingleValueState, Generic[A, T, R]):
    """The added values, folded into an accumulator that begins as ``start``; reading gives ``result(accumulator)``."""

    def __init__(
        self,
        start: A,
        *,
        add: Callable[[A, T], A],
        result: Callable[[A], R],
        of: type[A] | ColumnType | None = None,
        ttl: Ttl | None = None,
    ) -> None:
        super().__init__(type(start) if of is None else of, ttl)
        self.start: A = _coerced_default(self.value_type, start)
        self.add = add
        self.result = result

    def handle(self, storage: ValueCell) -> AggregatingView[A, T, R]:
        return AggregatingView(storage, self)

    @overload
    def __get__(self, function: None, owner: type) -> AggregatingState[A, T, R]: ...
    @overload
    def __get__(self, function: object, owner: type) -> AggregatingView[A, T, R]: ...
    def __get__(self, function: object | None, owner: type) -> AggregatingState[A, T, R] | AggregatingView[A, T, R]:
        return self if function is None else cast("AggregatingView[A, T, R]", self.handle_in(function))

    def __set__(self, function: object, value: object) -> None:
        raise AttributeError(f"state {self.name} takes values by self.{self.name}.add(value)")

    def __delete__(self, function: object) -> None:
        self.handle_in(function).clear()


class AggregatingView(Generic[A, T, R]):
    """An aggregating state of the current key."""

    __slots__ = ("_cell", "_state")

    def __init__(self, cell: ValueCell, state: AggregatingState[A, T, R]) -> None:
        self._cell = cell
        self._state = state

    @property
    def value(self) -> R | None:
        """Return the result; None before the first value."""
        accumulator = self._cell.get()
        return None if accumulator is None else self._state.result(cast("A", accumulator))

    def add(self, value: T) -> None:
        """Fold in one more value."""
        before = self._cell.get()
        self._cell.set(self._state.add(self._state.start if before is None else cast("A", before), value))

    def clear(self) -> None:
        """Forget all."""
        self._cell.set(None)


def declared_states(function: type) -> dict[str, DeclaredState]:
    """Return the states that a class declares and inherits, by name."""
    found = {name: getattr(function, name, None) for name in sorted(dir(function))}
    return {name: state for name, state in found.items() if isinstance(state, DeclaredState)}


def _coerced_default(value_type: ValueType, value: Any) -> Any:
    try:
        return None if value is None else value_type.coerce(value)
    except ValueTypeMismatch as error:
        raise ConfigError(f"the default of a state does not fit its type: {error}") from None
