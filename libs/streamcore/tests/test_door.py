"""The public names of the engine: complete, loadable, cheap to import, and all that examples and documents import."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import streamcore
from tests.harness.public_names import check_names_agree, check_names_resolve, deep_imports, loaded_libraries

ROOT = Path(__file__).parents[3]
_PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_public_names_equal_the_loaded_names_and_those_for_type_checkers() -> None:
    check_names_agree(streamcore)


def test_each_public_name_resolves_and_is_not_a_module_as_well() -> None:
    check_names_resolve(streamcore)


def test_a_private_name_is_not_an_attribute() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = streamcore.no_such_name  # type: ignore[attr-defined]


def test_an_import_of_the_engine_loads_no_library() -> None:
    assert loaded_libraries(streamcore) == frozenset()


def test_the_engine_documents_that_its_modules_are_private() -> None:
    assert "All modules and subpackages are private" in " ".join(str(streamcore.__doc__).split())


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_an_example_imports_only_public_names(path: Path) -> None:
    assert deep_imports(path.read_text()) == []


def test_code_blocks_of_the_documents_import_only_public_names() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("services/*/*.md")]
    pages.remove(
        ROOT / "docs" / "contributing.md"
    )  # its code is of the engine itself, and a test of its own executes it
    blocks = [(page.name, block) for page in pages for block in _PYTHON_BLOCK.findall(page.read_text())]
    assert [(page, module) for page, block in blocks for module in deep_imports(block)] == []


def test_an_import_of_a_private_module_is_detected() -> None:
    assert deep_imports("import streamcore as sc\nfrom rulecore.check import check_rules\n") == ["rulecore.check"]
