"""Checks the tests in the settings: the lanes, columns, lists and inputs that they name must be there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rulecore.mapping.problems import Problems
from streamcore.wire.lanes import DEAD_LETTERS

if TYPE_CHECKING:
    from headgate_etl.documents import EtlDocument, MappingTestDocument

#: What a test may say of a dead letter.
LETTER_COLUMNS = ("code", "reason", "record")


def check_tests(settings: EtlDocument, problems: Problems) -> None:
    """Add a problem for each name in a test that the rest of the document does not have: the test could not pass, or
    would pass for the wrong reason."""
    columns: dict[str, tuple[str, ...] | None] = {DEAD_LETTERS: LETTER_COLUMNS}
    for route in settings.routes:
        columns[route.name] = None if route.merge else route.columns or tuple(settings.model)
    if settings.deduplicate is not None and settings.deduplicate.duplicates_to is not None:
        columns[settings.deduplicate.duplicates_to] = None
    for number, test in enumerate(settings.tests):
        path = f"tests.{number}"
        _check_expected(test, columns, path, problems)
        for name in test.lists:
            if name not in settings.lists:
                problems.add(f"{path}.lists.{name}", f"there is no such list; lists are {_names(settings.lists)}")
        if test.lookup and not settings.all_lookups:
            problems.add(f"{path}.lookup", "the document has no look-up")


def _check_expected(
    test: MappingTestDocument, columns: Mapping[str, tuple[str, ...] | None], path: str, problems: Problems
) -> None:
    for lane, rows in test.expect.items():
        if lane not in columns:
            problems.add(f"{path}.expect.{lane}", f"there is no such route; there are {_names(columns)}")
            continue
        known = columns[lane]
        for number, row in enumerate(rows):
            for name in row:
                if known is not None and name not in known:
                    at = f"{path}.expect.{lane}.{number}.{name}"
                    problems.add(at, f"the row has no such column; there are {_names(known)}")


def _names(names: object) -> str:
    assert hasattr(names, "__iter__"), "names of something"
    return ", ".join(names) or "none"
