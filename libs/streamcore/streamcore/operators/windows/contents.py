"""What a live window holds: partials that are folded as elements come, or the elements themselves.

Elements are kept only where an evictor or a full window function needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from streamcore.operators.windows.arena import NOTHING, Arena
from streamcore.windowing.evictors import Evictor
from streamcore.windowing.values import Element

#: What a pane said: a node of partials, or the elements that its function saw.
View = int | tuple[Element, ...]


@dataclass(slots=True)
class Content:
    """``node`` and the open ``leaf`` of this cut, or ``elements`` in order of arrival. ``since``: elements with a
    smaller number are in the window no longer; ``upto``: the number after its last element's."""

    node: int = NOTHING
    leaf: int = NOTHING
    elements: list[Element] = field(default_factory=list)
    since: int = 0
    upto: int = 0


class Contents(Protocol):
    """How windows hold what they hold."""

    def add(self, content: Content, element: Element, row: int) -> None:
        """Take the element of a row of the cut."""
        ...

    def absorb(self, content: Content, others: Sequence[Content]) -> None:
        """Take what other windows held, which are no more."""
        ...

    def view(self, content: Content) -> tuple[View, int]:
        """What a pane says now, and how many elements an evictor left out."""
        ...

    def clear(self, content: Content) -> None:
        """Empty the window."""
        ...


class Folded:
    """Partials."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena

    def add(self, content: Content, element: Element, row: int) -> None:
        if content.leaf == NOTHING:
            content.leaf = self.arena.leaf()
        self.arena.put(content.leaf, row)
        content.upto = element.number + 1

    def absorb(self, content: Content, others: Sequence[Content]) -> None:
        first, *rest = others
        content.node, content.leaf = first.node, first.leaf  # the leaf stays open: most sessions only grow
        for other in rest:
            content.node = self.arena.merge(content.node, self.seal(other))
        content.upto = max(other.upto for other in others)

    def view(self, content: Content) -> tuple[View, int]:
        return self.seal(content), 0

    def clear(self, content: Content) -> None:
        content.node = content.leaf = NOTHING

    def seal(self, content: Content) -> int:
        """Close the open leaf."""
        if content.leaf != NOTHING:
            content.node, content.leaf = self.arena.merge(content.node, content.leaf), NOTHING
        return content.node


class Keeper(Protocol):
    """Where elements are stored for as long as some window holds them."""

    def hold(self, element: Element) -> None: ...
    def release(self, element: Element) -> None: ...


class Kept:
    """Elements."""

    def __init__(self, evictor: Evictor | None, keeper: Keeper) -> None:
        self.evictor = evictor
        self.keeper = keeper

    def add(self, content: Content, element: Element, row: int) -> None:  # noqa: ARG002 - the element says all
        content.elements.append(element)
        content.upto = element.number + 1
        self.keeper.hold(element)

    def absorb(self, content: Content, others: Sequence[Content]) -> None:
        content.elements += [element for other in others for element in other.elements]
        content.elements.sort(key=lambda element: element.number)
        content.upto = max(other.upto for other in (content, *others))

    def view(self, content: Content) -> tuple[View, int]:
        seen = self.seen(content.elements)
        return seen, len(content.elements) - len(seen)

    def clear(self, content: Content) -> None:
        for element in content.elements:
            self.keeper.release(element)
        content.elements, content.since = [], content.upto

    def seen(self, elements: Sequence[Element]) -> tuple[Element, ...]:
        """What is left of elements."""
        return self.evictor.keep(elements) if self.evictor else tuple(elements)
