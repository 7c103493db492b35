"""Takes members out of the text of a JSON object, as they are written there: a number keeps all its digits."""

from __future__ import annotations

import json
import re
from collections.abc import Collection

_JSON = json.JSONDecoder()
#: From the end of a name to its value.
_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")


def other_members(text: str, names: Collection[str]) -> str | None:
    """Return the object of the members with other names than these; None if there are none. ``text``: valid JSON."""
    at, members = text.index("{") + 1, list[str]()
    while (begin := text.find('"', at)) >= 0:
        name, at = _JSON.raw_decode(text, begin)
        colon = _COLON.match(text, at)
        assert colon is not None, "the text is a JSON object"
        _, at = _JSON.raw_decode(text, colon.end())
        if name not in names:
            members.append(text[begin:at])
    return "{" + ",".join(members) + "}" if members else None
