"""The public names of the rules: complete, loadable and cheap to import."""

from __future__ import annotations

import rulecore
from tests.harness.public_names import check_names_agree, check_names_resolve, loaded_libraries


def test_the_public_names_equal_the_loaded_names_and_those_for_type_checkers() -> None:
    check_names_agree(rulecore)


def test_each_public_name_resolves_and_is_not_a_module_as_well() -> None:
    check_names_resolve(rulecore)


def test_an_import_of_the_rules_loads_no_library() -> None:
    assert loaded_libraries(rulecore) == frozenset()


def test_the_rules_document_that_their_modules_are_private() -> None:
    assert "All modules and subpackages are private" in " ".join(str(rulecore.__doc__).split())
