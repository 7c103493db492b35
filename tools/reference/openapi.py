"""The description of the console's API, OpenAPI 3.1, from its routes and models."""

from __future__ import annotations

import json

from headgate.web.application import build_api


def page() -> str:
    """Return the description as JSON."""
    return json.dumps(build_api(None).openapi(), indent=1, ensure_ascii=False)
