"""``python -m tools.reference`` writes the reference pages; ``--check`` fails when one differs from the code."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.reference import codes, command_line, environment, functions, metrics, openapi, settings

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"
PAGES = {
    "codes.md": codes.page,
    "command-line.md": command_line.page,
    "environment.md": environment.page,
    "functions.md": functions.page,
    "metrics.md": metrics.page,
    "openapi.json": openapi.page,
    "settings.md": settings.page,
}


def main() -> int:
    """Write the pages, or with ``--check`` name those that differ from the code."""
    stale = []
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        path, text = FOLDER / name, page().rstrip() + "\n"
        if "--check" in sys.argv:
            stale += [name] if not path.exists() or path.read_text(encoding="utf-8") != text else []
        else:
            path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"docs/reference/{name} differs from the code: run make reference", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
