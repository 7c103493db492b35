"""Text that may be shown to people: text of a rule's author ends up in terminals, logs and reviews.

Promises: ``printable`` keeps the length of a text and leaves nothing in it that a terminal would obey, that ends a
line, or that shows text in another order than it reads (CVE-2021-42574). Does not know where texts come from.
"""

from __future__ import annotations

import re
from typing import Final

#: Control characters but for tab and line feed, those that change the direction of text, and halves of characters.
UNREADABLE: Final = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")


def printable(text: str) -> str:
    """Return the text with U+FFFD for every such character; tabs and line feeds stay."""
    return UNREADABLE.sub("\ufffd", text)


def in_one_line(text: str) -> str:
    """Return the same with a blank for every run of blanks and line ends."""
    return " ".join(printable(text).split())


def format_count(count: int, what: str) -> str:
    """Return ``1 rule``, ``2 rules``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
