"""How large an expression may be. Every limit is a setting; none can be passed by nesting or by spelling.

They bound the work of parsing, of one evaluation, and the size of its result, for a rule is written
by people who do not own the stream.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExpressionLimits:
    """Limits of one expression. Depth counts operators inside operators; ``a and b and c`` is one level."""

    text_bytes: int = 4_096
    depth: int = 32
    nodes: int = 500
    list_length: int = 1_000
    arguments: int = 16
    regex_bytes: int = 256
    like_bytes: int = 256
    #: How many times longer than the longest column a text may become (``concat``, ``replace``).
    text_growth: int = 64
