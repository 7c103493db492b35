"""The contents of a live window: partials that are folded as elements come, or the elements themselves.

Elements are kept only where an evictor or a full window function needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from streamcore.operators.windows.general.partial_store import NOTHING, PartialStore
from streamcore.windowing.evictors import Evictor
from streamcore.windowing.model import Element

#: The contents of an emitted pane: a node of partials, or the elements that its function received.
View = int | tuple[Element, ...]


@dataclass(slots=True)
class WindowContent:
    """``node`` and the open ``leaf`` of this cut, or ``elements`` in order of arrival. ``since``: elements with a
    smaller number are in the window no longer; ``upto``: the number after its last element's."""

    node: int = NOTHING
    leaf: int = NOTHING
    elements: list[Element] = field(default_factory=list)
    since: int = 0
    upto: int = 0


class ContentPolicy(Protocol):
    """How windows hold their elements."""

    def add(self, content: WindowContent, element: Element, row: int) -> None:
        """Add the element of a row of the cut."""
        ...

    def absorb(self, content: WindowContent, others: Sequence[WindowContent]) -> None:
        """Take the contents of other windows, which are merged into this one."""
        ...

    def view(self, content: WindowContent) -> tuple[View, int]:
        """Return the contents of a pane now, and how many elements an evictor left out."""
        ...

    def clear(self, content: WindowContent) -> None:
        """Empty the window."""
        ...


class FoldedContent:
    """Partials."""

    def __init__(self, partial_store: PartialStore) -> None:
        self.partial_store = partial_store

    def add(self, content: WindowContent, element: Element, row: int) -> None:
        if content.leaf == NOTHING:
            content.leaf = self.partial_store.leaf()
        self.partial_store.put(content.leaf, row)
        content.upto = element.number + 1

    def absorb(self, content: WindowContent, others: Sequence[WindowContent]) -> None:
        first, *rest = others
        content.node, content.leaf = first.node, first.leaf  # the leaf stays open: most sessions only grow
        for other in rest:
            content.node = self.partial_store.merge(content.node, self.seal(other))
        content.upto = max(other.upto for other in others)

    def view(self, content: WindowContent) -> tuple[View, int]:
        return self.seal(content), 0

    def clear(self, content: WindowContent) -> None:
        content.node = content.leaf = NOTHING

    def seal(self, content: WindowContent) -> int:
        """Close the open leaf."""
        if content.leaf != NOTHING:
            content.node, content.leaf = self.partial_store.merge(content.node, content.leaf), NOTHING
        return content.node


class ElementBuffer(Protocol):
    """Where elements are stored for as long as some window holds them."""

    def hold(self, element: Element) -> None: ...
    def release(self, element: Element) -> None: ...


class BufferedContent:
    """Elements."""

    def __init__(self, evictor: Evictor | None, keeper: ElementBuffer) -> None:
        self.evictor = evictor
        self.keeper = keeper

    def add(self, content: WindowContent, element: Element, row: int) -> None:  # noqa: ARG002 - the element suffices
        content.elements.append(element)
        content.upto = element.number + 1
        self.keeper.hold(element)

    def absorb(self, content: WindowContent, others: Sequence[WindowContent]) -> None:
        content.elements += [element for other in others for element in other.elements]
        content.elements.sort(key=lambda element: element.number)
        content.upto = max(other.upto for other in (content, *others))

    def view(self, content: WindowContent) -> tuple[View, int]:
        seen = self.visible_elements(content.elements)
        return seen, len(content.elements) - len(seen)

    def clear(self, content: WindowContent) -> None:
        for element in content.elements:
            self.keeper.release(element)
        content.elements, content.since = [], content.upto

    def visible_elements(self, elements: Sequence[Element]) -> tuple[Element, ...]:
        """Return the elements that the evictor keeps."""
        return self.evictor.keep(elements) if self.evictor else tuple(elements)
