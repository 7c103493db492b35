"""Limits of the repository: the size of folders, and unique names of public classes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PRODUCT = ("libs/streamcore/streamcore", "libs/rulecore/rulecore", "services", "cli/headgate")
_MODULES_IN_A_FOLDER = 20
#: Names that stand for two classes, with the reason.
_SHARED_NAMES = {
    "Record": "a record as a consumer reads it, and a record of a lane as a task returns it",
    "WhenFull": "a collection of a key drops the oldest item, deduplication lets the row pass: other choices",
    "MetricDefinition": "services and operator export by different libraries; the operator imports neither",
}


def product_modules() -> Iterator[Path]:
    for part in _PRODUCT:
        yield from (path for path in (ROOT / part).rglob("*.py") if "tests" not in path.parts)


def test_no_folder_has_more_modules_than_the_limit() -> None:
    sizes = Counter(path.parent for path in product_modules() if not path.name.startswith("__"))
    assert len(sizes) > 50
    large = {str(folder.relative_to(ROOT)): size for folder, size in sizes.items() if size > _MODULES_IN_A_FOLDER}
    assert not large, "divide these folders by subject"


def test_a_public_class_name_is_unique_in_a_distribution() -> None:
    homes: dict[str, set[Path]] = defaultdict(set)
    for path in product_modules():
        for name in re.findall(r"^class ([A-Za-z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            homes[name].add(path.relative_to(ROOT))
    double = {name: sorted(map(str, paths)) for name, paths in homes.items() if len(paths) > 1}
    assert double.keys() == _SHARED_NAMES.keys(), "rename one of two, or give the reason here"
