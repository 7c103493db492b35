"""The limits of an expression's size.

Rules are written by people who do not own the stream, so the limits bound the work of parsing, the work of an
evaluation, and the size of its result. Nesting an expression, or writing it in another way, does not avoid a limit.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Of how many arrays the work of an expression may be the product.
MAX_PRODUCTS = 2
#: The most values, and bytes of texts, of the result of a ``transform`` whose lambda repeats texts, arrays, maps or
#: structs from outside of it for each element. A larger result is NULL.
MAX_TRANSFORMED = 1_000_000


@dataclass(frozen=True, slots=True)
class ExpressionLimits:
    """Limits of one expression."""

    #: Most bytes of the text.
    text_bytes: int = 4_096
    #: Most levels of operators inside operators; ``a and b and c`` is one level.
    depth: int = 32
    #: Most nodes of the tree: operators, calls, fields and literals.
    nodes: int = 500
    #: Most values of an ``in`` list.
    list_length: int = 1_000
    #: Most arguments of a function.
    arguments: int = 16
    #: Most bytes of a regular expression.
    regex_bytes: int = 256
    #: Most bytes of a ``like`` pattern.
    like_bytes: int = 256
    #: How many times longer than its longest input a text may become (``concat``, ``replace``).
    text_growth: int = 64
