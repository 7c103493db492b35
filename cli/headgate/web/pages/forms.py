"""Forms of the pages: their entries, and the terms of the change that they ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import Depends, Request

from headgate.time_arguments import parse_number
from headgate.web.access.rights import ConsoleSession
from headgate.web.changes.publish import Terms
from headgate.web.context import Console
from headgate.web.problems import ProblemCode, ProblemError

_FORM = "application/x-www-form-urlencoded"
_ENTRIES = 20
_WAIT_MS = 5_000


async def read_form(request: Request) -> Mapping[str, str]:
    """Return the entries of a form."""
    if request.headers.get("content-type", "").partition(";")[0] != _FORM:
        raise ProblemError(415, ProblemCode.INVALID_REQUEST, f"a form is sent as {_FORM}")
    try:
        entries = parse_qs((await request.body()).decode(), keep_blank_values=True, max_num_fields=_ENTRIES)
    except ValueError:
        raise ProblemError(422, ProblemCode.INVALID_REQUEST, "the form cannot be read") from None
    return {name: values[-1] for name, values in entries.items()}


Form = Annotated[Mapping[str, str], Depends(read_form)]


def read_terms(console: Console, by: ConsoleSession, form: Mapping[str, str]) -> Terms:
    """Return the terms of the change that a form asks for."""
    wait_ms = min(_WAIT_MS, console.settings.limits.wait_ms)
    return Terms(form.get("etag") or None, by, form.get("why") or None, form.get("key") or None, wait_ms)


def read_text(form: Mapping[str, str], name: str) -> str:
    """Return a text of several lines. A browser sends each line end as two characters."""
    return form.get(name, "").replace("\r\n", "\n")


def read_version(form: Mapping[str, str], name: str) -> int | None:
    """Return a version. None without one; 0, which no rule has, if it is no number."""
    text = form.get(name, "")
    return (parse_number(text) or 0) if text else None
