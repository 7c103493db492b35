"""Runs the programs of the pages in docs/library, and writes their output into the pages.

Call it as ``python -m tools.library_pages``. The Python blocks of a page are one program. A block of text after a block
of Python is what it prints.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path

PAGES = Path(__file__).parent.parent / "docs" / "library"
_BLOCK = re.compile(r"```python\n(?P<program>.*?)```\n(?:\n```text\n(?P<output>.*?)```\n)?", re.DOTALL)


def pages() -> list[Path]:
    """Return all pages."""
    return sorted(PAGES.glob("*.md"))


def with_output(text: str, name: str) -> str:
    """Return a page with the output of its programs. ``name``: of the page, for error messages."""
    # A module of its own, since functions are looked up by their module.
    module = type(sys)(name.replace("-", "_"))
    module.__dict__["__name__"] = name.replace("-", "_")
    sys.modules[module.__name__] = module

    def run(block: re.Match[str]) -> str:
        printed, program = io.StringIO(), block["program"]
        with contextlib.redirect_stdout(printed):
            exec(compile(program, f"{name}.md", "exec"), module.__dict__)
        expected = "" if block["output"] is None else f"\n```text\n{_trimmed(printed.getvalue())}```\n"
        return f"```python\n{program}```\n{expected}"

    try:
        return _BLOCK.sub(run, text)
    finally:
        del sys.modules[module.__name__]


def _trimmed(text: str) -> str:
    """Return the text without spaces at the ends of lines."""
    return "".join(f"{line.rstrip()}\n" for line in text.rstrip("\n").split("\n"))


def main() -> None:
    """Rewrite the pages."""
    for page in pages():
        page.write_text(with_output(page.read_text(), page.stem))


if __name__ == "__main__":
    main()
