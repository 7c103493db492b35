"""``get_json_object`` of one text. Numbers keep their digits, and an object or an array is written without spaces."""

from __future__ import annotations

import json
import re
from typing import Any

#: The most levels of objects and arrays inside each other.
MAX_JSON_DEPTH = 100


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class _Digits(str):
    """A number as it is written."""

    __slots__ = ()


def find_in_json(path: tuple[str | int, ...], text: str) -> str | None:
    """Return the value at a path as text; None if there is none, if it is null, and for text that is not JSON."""
    if is_deep(text):
        return None
    try:
        value: Any = json.loads(text, parse_float=_Digits, parse_int=_Digits, parse_constant=_reject)
    except ValueError:
        return None
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and step < len(value) else None
    if value is None:
        return None
    found = str(value) if isinstance(value, str) else _write(value)
    return None if _LONE_SURROGATE.search(found) else found


def _reject(name: str) -> None:
    raise ValueError(name)


def is_deep(text: str) -> bool:
    """Return whether brackets are nested too deep. The parser's own limit depends on what calls it."""
    if text.count("[") + text.count("{") <= MAX_JSON_DEPTH:
        return False
    depth, in_text, escaped = 0, False, False
    for character in text:
        if in_text:
            in_text, escaped = escaped or character != '"', character == "\\" and not escaped
        elif character == '"':
            in_text = True
        else:
            depth += (character in "[{") - (character in "]}")
            if depth > MAX_JSON_DEPTH:
                return True
    return False


def _write(value: Any) -> str:
    match value:
        case _Digits():
            return str(value)
        case list():
            return f"[{','.join(map(_write, value))}]"
        case dict():
            return "{" + ",".join(f"{_write(str(name))}:{_write(item)}" for name, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
