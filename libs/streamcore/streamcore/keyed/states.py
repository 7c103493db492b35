"""The states with one value that a keyed function declares on its class, and the views that its methods use.

::

    class Velocity(ProcessFunction):
        total = ValueState(int, default=0)                      # self.total += 1; del self.total
        recent = ListState(float, most=10)                      # self.recent.append(2.5); for x in self.recent
        seen = MapState(str, int, ttl=Ttl(60_000))              # self.seen["a"] = 1; "a" in self.seen
        best = ReducingState(max, int)                          # self.best.add(3); self.best.value
        mean = AggregatingState((0, 0.0), add=..., result=...)  # self.mean.add(2.5); self.mean.value

A method sees the state of the current key: that of the event or timer. Values are immutable
(``streamcore.keyed.value_codec``), so a change is always a write. None is never a value: an empty state without a
default reads as None, and writing None to a ``ValueState`` clears it.
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
    """The declaration of a state: a class attribute of the function. ``value_type``: the type of its values."""

    def __init__(self, declared: object, ttl: Ttl | None) -> None:
        self.value_type: ValueType = value_type_for_state(declared)
        self.ttl = ttl
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def attach(self, function: object, storage: ValueCell | CollectionTable) -> None:
        """Connect the state of a function instance to its stored values, so that the function's methods can use it."""
        vars(function)[self.name] = self.handle(storage)

    @abstractmethod
    def handle(self, storage: Any) -> object:
        """Return the object by which the function's methods read and write ``storage``."""

    def handle_in(self, function: object) -> Any:
        """Return the object that ``attach`` created; ``LookupError`` if an operator has not attached the state."""
        try:
            return function.__dict__[self.name]
        except KeyError:
            raise LookupError(f"state {self.name} can be used only in methods that an operator calls") from None


class SingleValueState(DeclaredState):
    """The declaration of a state with one value per key, or per window of a key (``keyed.window_states``)."""

    is_per_window = False


class ValueState(SingleValueState, Generic[T]):
    """One value per key. A read returns ``default`` if the key has no value.

    ``of``: the type of the value. int, float, bool, str, datetime and Polars types are stored in a column of that type;
    Decimal, bytes, tuple and NamedTuple classes in binary form. Without ``of``, the type is that of the default;
    without a default too, any plain value is stored in binary form.
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
            cell = self.handle_in(function)  # raises the error
        value = (
            cell.values[cell.scope.key_slot] if cell.ttl is None else cell.get()
        )  # no method call: most reads take this path
        return self.default if value is None else value  # type: ignore[no-any-return]  # coerced to T

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
    """The ``ReducingState`` of the current key."""

    __slots__ = ("_cell", "_reduce")

    def __init__(self, cell: ValueCell, reduce: Callable[[T, T], T]) -> None:
        self._cell = cell
        self._reduce = reduce

    @property
    def value(self) -> T | None:
        """Return the combination of all added values; None before the first."""
        return cast("T | None", self._cell.get())

    def add(self, value: T) -> None:
        """Combine the value of the key with one more."""
        before = self._cell.get()
        self._cell.set(
            value if before is None else self._reduce(cast("T", before), cast("T", self._cell.coerce(value)))
        )

    def clear(self) -> None:
        """Remove the value."""
        self._cell.set(None)


class AggregatingState(SingleValueState, Generic[A, T, R]):
    """The added values, folded by ``add`` into an accumulator. A read returns ``result(accumulator)``.

    ``start``: the accumulator before the first value. ``of``: its type; that of ``start`` if left out.
    """

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
    """The ``AggregatingState`` of the current key."""

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
        """Add one value to the accumulator."""
        before = self._cell.get()
        self._cell.set(self._state.add(self._state.start if before is None else cast("A", before), value))

    def clear(self) -> None:
        """Remove the value."""
        self._cell.set(None)


def declared_states(function: type) -> dict[str, DeclaredState]:
    """Return the states that a class declares and inherits, by name."""
    attributes = {name: getattr(function, name, None) for name in sorted(dir(function))}
    return {name: state for name, state in attributes.items() if isinstance(state, DeclaredState)}


def _coerced_default(value_type: ValueType, value: Any) -> Any:
    try:
        return None if value is None else value_type.coerce(value)
    except ValueTypeMismatch as error:
        raise ConfigError(f"the default or start value of a state does not fit its type: {error}") from None
