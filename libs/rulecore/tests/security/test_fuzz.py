"""Any input of a parser gives a value or the documented error, in bounded time and memory.

``HEADGATE_INPUTS`` so many inputs (`make nightly`: 200,000), built and run by ``tests.harness.faults.fuzz_cases`` in a
sandbox. An input follows from its number, so a finding can be reproduced:
``python -m tests.harness.faults.fuzz_cases 1/28928``.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.harness.faults.fuzz_cases import TARGETS
from tests.harness.faults.sandbox import Limits, failures, run_sandboxed

INPUTS = int(os.environ.get("HEADGATE_INPUTS", "2100"))
SEED = int(os.environ.get("HEADGATE_SEED", "1"))
GROWTH_BYTES = 100 << 20
LEAST_SHARE = 0.02  # the least share of inputs of a target that give values

pytestmark = pytest.mark.timeout(300 + INPUTS // 50)


def test_every_input_gives_a_value_or_the_documented_error() -> None:
    report = run_sandboxed(
        "tests.harness.faults.fuzz_cases", [SEED, 0, INPUTS], Limits(cpu_s=5, memory_bytes=256 << 20)
    )
    words = Counter(outcome.word for outcome in report.outcomes)
    print(f"{len(report.outcomes)} inputs, {report.grown_bytes >> 20} MiB, longest {report.longest_cpu_s} CPU-seconds")
    print("\n".join(f"  {word}: {count}" for word, count in sorted(words.items())))
    assert report.ended == ""
    assert failures(report.outcomes) == []
    assert len(report.outcomes) == INPUTS
    assert report.grown_bytes < GROWTH_BYTES
    for target in TARGETS:
        values, rejected = words[f"{target}: value"], words[f"{target}: rejected"]
        assert values > LEAST_SHARE * (values + rejected), f"{target}: hardly any input is sound"
        assert rejected > LEAST_SHARE * (values + rejected), f"{target}: hardly any input is rejected"


@pytest.mark.slow
def test_the_name_of_a_zone_that_does_not_exist_reads_no_folder() -> None:
    """Input 6096 of this seed names one."""
    report = run_sandboxed("tests.harness.faults.fuzz_cases", [20261126, 6096, 1])
    assert report.ended == ""
    assert [outcome.word for outcome in report.outcomes] == ["tree: rejected"]
    assert failures(report.outcomes) == []
