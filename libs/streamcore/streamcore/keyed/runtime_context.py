"""What a user's function learns when it is opened: its step and its shard, and counters and gauges of its own.

A function object with a method ``open(context)`` is opened once in each process that runs it, and again after a
restart; one with ``close()`` is closed when the process drops it or ends in order. Neither may compute results: a crash
closes nothing, and workers are ended by force. There is no clock here, because outputs depend on events alone.

Counters and gauges are metrics, no state: they count since the process started, and a cut that runs again counts again.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

from streamcore.errors import ConfigError

#: Counters of a kernel that are counters and gauges of users' functions, by the part of the name before the first dot.
#: The rest is the step, a dot and the name. No step begins with an underscore.
USER_COUNTER, USER_GAUGE = "__counter", "__gauge"
_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}\Z")
_MOST = 100

#: Functions and their arguments that undo a call of a function.
Journal = list[tuple[Callable[..., object], *tuple[object, ...]]]


class FunctionCounter:
    """A counter of a function. What a failed call of a keyed function adds is taken back."""

    __slots__ = ("_counts", "_journal", "_name")

    def __init__(self, name: str, counts: dict[str, int], journal: Journal | None) -> None:
        self._name = name
        self._counts = counts
        self._journal = journal

    def add(self, count: int = 1) -> None:
        """Add to the counter; ``ValueError`` for a negative number."""
        if count < 0:
            raise ValueError(f"counter {self._name}: {count} is negative; use a gauge for what goes down")
        before = self._counts[self._name]
        if self._journal is not None:
            self._journal.append((self._counts.__setitem__, self._name, before))
        self._counts[self._name] = before + int(count)


class FunctionGauge:
    """A gauge of a function: the metric is the sum of the values that the shards have set last."""

    __slots__ = ("_name", "_values")

    def __init__(self, name: str, values: dict[str, int]) -> None:
        self._name = name
        self._values = values

    def set(self, value: int) -> None:
        """Set the value, a whole number."""
        self._values[self._name] = int(value)


class RuntimeContext:
    """Where a function runs, and its metrics. ``step``: the name of its step. ``shard``: the number of the shard, None
    for a step without a key. ``shards``: the number of shards of the app."""

    def __init__(self, step: str, shard: int | None, shards: int) -> None:
        self.step = step
        self.shard = shard
        self.shards = shards
        self._journal: Journal | None = None
        self._counts: dict[str, int] = {}
        self._gauges: dict[str, int] = {}

    def counter(self, name: str) -> FunctionCounter:
        """Return the counter of that name, such as ``alarms``: metric ``headgate_function_count_total``."""
        self._check(name, self._counts)
        self._counts.setdefault(name, 0)
        return FunctionCounter(name, self._counts, self._journal)

    def gauge(self, name: str) -> FunctionGauge:
        """Return the gauge of that name: metric ``headgate_function_gauge``."""
        self._check(name, self._gauges)
        return FunctionGauge(name, self._gauges)

    def undo_in(self, journal: Journal) -> None:
        """Append to this journal what takes a count back. The engine calls this before the function is opened."""
        self._journal = journal

    def take_metrics(self) -> dict[str, int]:
        """Return the counts since the last call and the values of the gauges, by the names that metrics have."""
        counts = {f"{USER_COUNTER}.{self.step}.{name}": count for name, count in self._counts.items() if count}
        self._counts.update(dict.fromkeys(self._counts, 0))
        return counts | {f"{USER_GAUGE}.{self.step}.{name}": value for name, value in self._gauges.items()}

    @contextlib.contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Take back what is counted within, if an error is raised."""
        before = dict(self._counts)
        try:
            yield
        except BaseException:
            self._counts.update(dict.fromkeys(self._counts, 0) | before)
            raise

    def _check(self, name: str, known: Mapping[str, int]) -> None:
        if not _NAME.match(name):
            raise ConfigError(f"{self.step}: metric name {name!r} must have at most 63 of a-z, 0-9 and _, a-z first")
        if name not in known and len(known) >= _MOST:
            raise ConfigError(f"{self.step}: {name} would be more than {_MOST} counters or gauges of one function")


@runtime_checkable
class Openable(Protocol):
    """An operator or a function that is opened before its first call."""

    def open(self, context: RuntimeContext, /) -> None:
        """Prepare for calls, in this process."""
        ...


def close(function: object) -> None:
    """Close a function object, if it can be closed."""
    closing = getattr(function, "close", None)
    if callable(closing):
        closing()


@dataclass
class OpenFunctions:
    """The functions of one shard of a stage, or of one task of the stateless stage: each is opened before its first
    call, where it runs, never where an app is only described or packed."""

    shard: int | None = None
    shards: int = 1
    _contexts: dict[str, RuntimeContext] = field(default_factory=dict)
    _opened: list[object] = field(default_factory=list)

    def locate(self, shard: int, shards: int) -> None:
        """Set where the functions run. Called before each cut, and taken for those that are opened later."""
        self.shard, self.shards = shard, shards

    def open(self, step: str, function: object) -> RuntimeContext | None:
        """Open the function or operator of a step, unless it was opened; return its context if it has one."""
        known = self._contexts.get(step)
        if known is None and isinstance(function, Openable) and not isinstance(function, type):
            known = RuntimeContext(step, self.shard, self.shards)
            function.open(known)
            self._contexts[step] = known
            self._opened.append(function)
        return known

    def close(self) -> None:
        """Close what was opened."""
        while self._opened:
            close(self._opened.pop())
        self._contexts.clear()


def counted(function: Callable[[_Argument], _Result], context: RuntimeContext) -> Callable[[_Argument], _Result]:
    """Return the function such that what a failed call has counted is taken back."""

    def call(argument: _Argument) -> _Result:
        with context.undone_on_error():
            return function(argument)

    return call
