"""Renders templates: every value is escaped, an unknown name is an error. A page is a pure function of its values."""

from __future__ import annotations

import functools
from importlib import resources
from pathlib import Path

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from headgate.time_arguments import show_span, show_time

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000


def render(template: str, **values: object) -> str:
    """Render a template of this package."""
    return _environment().get_template(template).render(**values)


@functools.cache
def _environment() -> Environment:
    folder = Path(str(resources.files("headgate.web") / "templates"))
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "time": show_time,
        "span": show_span,
        "ago": show_age,
        "json": show_json,
        "number": show_number,
    }
    return environment


def show_age(time_ms: int | None, now_ms: int) -> str:
    """Render how long ago a time was, such as ``5 min ago``."""
    if time_ms is None:
        return "-"
    age = max(0, now_ms - time_ms)
    for size, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (_SECOND, "s")):
        if age >= size:
            return f"{age // size} {name} ago"
    return "now"


def show_json(value: object) -> str:
    """Render a value as JSON with indents."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def show_number(value: float) -> str:
    """Render a number with its thousands apart."""
    return f"{value:,}"
