"""The contents of a live window: the partials of its elements, or the elements themselves.

A window keeps its elements only if an evictor or a full window function needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from streamcore.operators.windows.general.partial_store import NOTHING, PartialStore
from streamcore.operators.windows.general.user_parts import FailedCallError, kept_elements
from streamcore.windowing.evictors import Evictor
from streamcore.windowing.model import Element
from streamcore.windowing.spec import is_built_in


@dataclass(frozen=True, slots=True)
class FailedView:
    """A pane for which a trigger or an evictor of the user failed. ``elements``: none if windows store partials."""

    reason: str
    elements: tuple[Element, ...]


#: The contents of an emitted pane: a node of partials, or the elements that its function received.
View = int | tuple[Element, ...] | FailedView


@dataclass(slots=True)
class WindowContent:
    """The contents of one live window.

    A window of partials has ``node``, their node in the ``PartialStore``, and ``leaf``, the node of this cut's elements
    that are not merged into ``node`` yet. A window of elements has ``elements`` in order of arrival. The window does
    not contain elements with numbers below ``since``. ``upto``: the number of the last element plus 1.
    """

    node: int = NOTHING
    leaf: int = NOTHING
    elements: list[Element] = field(default_factory=list)
    since: int = 0
    upto: int = 0


class ContentPolicy(Protocol):
    """How live windows store their contents."""

    def add(self, content: WindowContent, element: Element, row: int) -> None:
        """Add an element. ``row``: the index of its row in the cut."""
        ...

    def absorb(self, content: WindowContent, absorbed: Sequence[WindowContent]) -> None:
        """Merge the contents of other windows into this one."""
        ...

    def view(self, content: WindowContent) -> tuple[View, int]:
        """Return the contents of a pane that fires now, and the number of elements that the evictor removed from it."""
        ...

    def clear(self, content: WindowContent) -> None:
        """Empty the window."""
        ...


class FoldedContent:
    """Stores the partials of the elements."""

    def __init__(self, partial_store: PartialStore) -> None:
        self.partial_store = partial_store

    def add(self, content: WindowContent, element: Element, row: int) -> None:
        if content.leaf == NOTHING:
            content.leaf = self.partial_store.leaf()
        self.partial_store.put(content.leaf, row)
        content.upto = element.number + 1

    def absorb(self, content: WindowContent, absorbed: Sequence[WindowContent]) -> None:
        first, *later = absorbed
        content.node, content.leaf = first.node, first.leaf  # the leaf stays open: most sessions only grow
        for window in later:
            content.node = self.partial_store.merge(content.node, self.seal(window))
        content.upto = max(window.upto for window in absorbed)

    def view(self, content: WindowContent) -> tuple[View, int]:
        return self.seal(content), 0

    def clear(self, content: WindowContent) -> None:
        content.node = content.leaf = NOTHING

    def seal(self, content: WindowContent) -> int:
        """Merge the leaf into the node, and return the node."""
        if content.leaf != NOTHING:
            content.node, content.leaf = self.partial_store.merge(content.node, content.leaf), NOTHING
        return content.node


class ElementBuffer(Protocol):
    """Stores elements for as long as a window holds them."""

    def hold(self, element: Element) -> None: ...
    def release(self, element: Element) -> None: ...


class BufferedContent:
    """Stores the elements themselves. ``evictor``: chooses the elements of a pane; None keeps all."""

    def __init__(self, evictor: Evictor | None, buffer: ElementBuffer) -> None:
        self.evictor = evictor
        self._buffer = buffer

    def add(self, content: WindowContent, element: Element, row: int) -> None:  # noqa: ARG002 - the element suffices
        content.elements.append(element)
        content.upto = element.number + 1
        self._buffer.hold(element)

    def absorb(self, content: WindowContent, absorbed: Sequence[WindowContent]) -> None:
        content.elements += [element for window in absorbed for element in window.elements]
        content.elements.sort(key=lambda element: element.number)
        content.upto = max(window.upto for window in (content, *absorbed))

    def view(self, content: WindowContent) -> tuple[View, int]:
        visible = self.visible_elements(content.elements)
        return visible, 0 if isinstance(visible, FailedView) else len(content.elements) - len(visible)

    def clear(self, content: WindowContent) -> None:
        for element in content.elements:
            self._buffer.release(element)
        content.elements, content.since = [], content.upto

    def visible_elements(self, elements: Sequence[Element]) -> tuple[Element, ...] | FailedView:
        """Return the elements that the evictor keeps."""
        if self.evictor is None:
            return tuple(elements)
        if is_built_in(self.evictor):
            return self.evictor.keep(elements)
        try:
            return kept_elements(self.evictor, elements)
        except FailedCallError as error:
            return FailedView(str(error), tuple(elements))
