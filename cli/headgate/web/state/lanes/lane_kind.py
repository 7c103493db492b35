"""The differences from lane to lane: how a record is read, the terms by which it is found, and the filter that selects
some."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import orjson
from pydantic import JsonValue

from headgate.explain.kafka_reader import KafkaRecord

V = TypeVar("V")
V_contra = TypeVar("V_contra", contravariant=True)
#: A text that JSON has as it is, in every way of writing it.
_PLAIN = re.compile(r"[A-Za-z0-9_. :-]+")


class LaneFilter(Protocol[V_contra]):
    """Selects values of a lane. ``terms``: those that each selected value has. ``since_ms``: the earliest time of a
    record. ``needles``: bytes that each selected record contains, whatever wrote it: most need no parser."""

    @property
    def terms(self) -> frozenset[str]:
        """The terms."""
        ...

    @property
    def since_ms(self) -> int | None:
        """The earliest time; None: any."""
        ...

    @property
    def needles(self) -> tuple[bytes, ...]:
        """The bytes."""
        ...

    def matches(self, value: V_contra) -> bool:
        """Return whether the filter selects the value."""
        ...


@dataclass(frozen=True, slots=True)
class LaneKind(Generic[V]):
    """``parse``: returns the value of a record, None for one that is none, because others may write there. ``terms``:
    returns the terms by which a value is found."""

    parse: Callable[[KafkaRecord], V | None]
    terms: Callable[[V], Iterable[str]]


@dataclass(frozen=True, slots=True)
class LanePage(Generic[V]):
    """Values of a lane, the newest first. ``read``: the records that were read. ``next``: the cursor of the next
    page; None: there is none."""

    values: tuple[V, ...]
    read: int
    next: str | None


def term(name: str, text: str) -> str:
    """Return the term of a property, such as the rule ``seen``."""
    return f"{name} {text}"


def key_terms(key: Mapping[str, JsonValue]) -> Sequence[str]:
    """Return the terms of a key: of each column the value, and ``column=value``."""
    found = list[str]()
    for name, value in key.items():
        text = value if isinstance(value, str) else orjson.dumps(value).decode()
        found += (f"key {text}", f"key {name}={text}")  # as ``term`` has them: an index makes them of each record
    return found


def find_needles(texts: Iterable[str]) -> tuple[bytes, ...]:
    """Return those of some texts that a record has byte by byte."""
    return tuple(text.encode() for text in texts if _PLAIN.fullmatch(text))
