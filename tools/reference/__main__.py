"""``python -m tools.reference`` writes the reference pages; ``--check`` fails when one differs from the code."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.reference import codes, command_line, cookbook, environment, functions, metrics, openapi, settings

FOLDER = Path(__file__).resolve().parents[2] / "docs"
PAGES = {
    "reference/codes.md": codes.page,
    "reference/command-line.md": command_line.page,
    "reference/environment.md": environment.page,
    "reference/functions.md": functions.page,
    "reference/metrics.md": metrics.page,
    "reference/openapi.json": openapi.page,
    "reference/settings.md": settings.page,
    **{f"cookbook/{name}": page for name, page in cookbook.pages().items()},
}


def main() -> int:
    """Write the pages, or with ``--check`` name those that differ from the code."""
    stale = []
    for name, page in PAGES.items():
        path, text = FOLDER / name, page().rstrip() + "\n"
        if "--check" in sys.argv:
            stale += [name] if not path.exists() or path.read_text(encoding="utf-8") != text else []
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"docs/{name} differs from the code: run make reference", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
