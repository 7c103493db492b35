"""The programs of the pages in docs/library run, and print what the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.library_pages import pages, with_output


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_page_shows_the_output_of_its_programs(page: Path) -> None:
    text = page.read_text()
    assert with_output(text, page.stem) == text, "run `python -m tools.library_pages` and read the difference"
