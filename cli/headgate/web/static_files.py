"""The style sheet and the script of the pages, from the package; they are read once."""

from __future__ import annotations

import functools
import hashlib
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response

from headgate.web.problems import not_found

_TYPES = {
    "console.css": "text/css; charset=utf-8",
    "tokens.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "workbench.js": "text/javascript; charset=utf-8",
    "completion.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


async def static_file(request: Request) -> Response:
    """Answer with a file; 304 if the browser has it."""
    name = request.path_params["name"]
    if name not in _TYPES:
        raise not_found(f"there is no file {name}")
    content, etag = _read(name)
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=_TYPES[name], headers=headers)


@functools.cache
def _read(name: str) -> tuple[bytes, str]:
    content = (resources.files("headgate.web") / "static" / name).read_bytes()
    return content, f'"{hashlib.sha256(content).hexdigest()[:20]}"'
