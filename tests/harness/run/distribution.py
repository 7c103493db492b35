"""How the tests of a run are spread over its workers: what takes long begins first, so that nothing long is left over.

Long tests mostly wait. So that they do not wait all at the same time, and the processors with them, one of more workers
than processors begins with what takes least, which computes. The workers meet in the middle.

A worker gets a unit at a time. A unit is a file, so that fixtures of a module are made once; a test that
``expected_seconds.txt`` names is one of its own, and so are all tests with one ``xdist_group``, which share what is
costly to set up.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TABLE = Path(__file__).with_name("expected_seconds.txt")
_MB_PER_WORKER = 2_500
_PROCESSORS = os.cpu_count() or 1
_FILE_MARKS = re.compile(r"^pytestmark = (\[[^\]]*\]|.*)", re.MULTILINE)
_MARK = re.compile(r"pytest\.mark\.(\w+)")


@cache
def expected_seconds() -> dict[str, float]:
    """Return the seconds of what takes long: files, and tests that may run apart from the rest of their file."""
    lines = [line.split() for line in TABLE.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    return {what: float(seconds) for seconds, what in lines}


def find_group(item: pytest.Item) -> str | None:
    """Return the ``xdist_group`` of a test."""
    group = item.get_closest_marker("xdist_group")
    return None if group is None else str(group.args[0])


def unit(item: pytest.Item) -> str:
    """Return the name of the unit that the test belongs to."""
    group = find_group(item)
    if group is not None:
        return group
    table = expected_seconds()
    test = item.nodeid.split("[", 1)[0]
    return item.nodeid if test in table else item.nodeid.split("::", 1)[0]


def longest_first(items: list[pytest.Item]) -> dict[str, str]:
    """Put the units that take longest first, and return the unit of each test."""
    table = expected_seconds()
    seconds: dict[str, float] = defaultdict(float)
    for item in items:
        name = unit(item)
        test = item.nodeid.split("[", 1)[0]
        seconds[name] = max(seconds[name], table.get(name, 0.0), table.get(test, 0.0))
    units = {item.nodeid: unit(item) for item in items}
    items.sort(
        key=lambda item: (-seconds[units[item.nodeid]], units[item.nodeid] if seconds[units[item.nodeid]] else "")
    )
    return units


@cache
def left_out(expression: str) -> frozenset[str]:
    """Return the markers whose tests the option ``-m`` leaves out: ``not slow and not spark`` leaves out these two."""
    terms = [term.split() for term in expression.split(" and ")]
    return frozenset(term[1] for term in terms) if all(len(t) == 2 and t[0] == "not" for t in terms) else frozenset()


def file_marks(file: Path) -> frozenset[str]:
    """Return the markers that a file's ``pytestmark`` gives all its tests."""
    found = _FILE_MARKS.search(file.read_text(encoding="utf-8"))
    return frozenset(_MARK.findall(found.group())) if found else frozenset()


def choose_cases(items: list[pytest.Item]) -> None:
    """Mark all but some cases of a test ``slow``: ``quick_cases(4)`` leaves four, spread over all of them."""
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("quick_cases") is not None:
            tests[item.nodeid.split("[", 1)[0]].append(item)
    for cases in tests.values():
        marker = cases[0].get_closest_marker("quick_cases")
        assert marker is not None
        chosen = {n * len(cases) // marker.args[0] for n in range(marker.args[0])}
        for n, item in enumerate(cases):
            if n not in chosen:
                item.add_marker(pytest.mark.slow)


def write_units(path: Path, units: dict[str, str]) -> None:
    """Hand the units to the process that distributes the tests."""
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(units), encoding="utf-8")
    scratch.replace(path)


def new_scheduler(config: pytest.Config, log: Any, path: Path) -> Any:
    """Create what gives each worker the next unit."""
    from xdist.scheduler import LoadScopeScheduling

    class ByUnit(LoadScopeScheduling):  # type: ignore[misc]
        def __init__(self) -> None:
            config.option.loadscopereorder = False
            super().__init__(config, log)
            self._units: dict[str, str] = {}

        def _split_scope(self, nodeid: str) -> str:
            if not self._units:
                self._units = json.loads(path.read_text(encoding="utf-8"))
            return self._units[nodeid]

        def _assign_work_unit(self, node: Any) -> None:
            if len(self.nodes) > _PROCESSORS and node is self.nodes[0]:
                self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
            super()._assign_work_unit(node)

        def remove_node(self, node: Any) -> str | None:
            """Hand on what a worker that died had left, but not the test that it died of, which would kill the next."""
            left = {name: tests for name, tests in self.assigned_work.pop(node).items() if not all(tests.values())}
            if not left:
                return None
            tests = next(iter(left.values()))
            crashed: str = next(nodeid for nodeid, completed in tests.items() if not completed)
            tests[crashed] = True
            self.workqueue.update({name: tests for name, tests in left.items() if not all(tests.values())})
            for other in self.assigned_work:
                self._reschedule(other)
            return crashed

    return ByUnit()


def worker_count(waiting: int) -> int:
    """Return how many workers this machine serves, if memory lasts: its processors and ``waiting`` more."""
    try:
        memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (ValueError, OSError):
        memory_mb = 8_000
    return max(1, min(waiting + _PROCESSORS, memory_mb // _MB_PER_WORKER, 16))
