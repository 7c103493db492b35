"""The engine gives what Flink's CEP library gives for the cases of ``tests/flink_cep``, but for known differences."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from streamcore.errors import ConfigError
from tests.harness.patterns.flink_cases import Json, run

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[4] / "tests/flink_cep/corpus.jsonl").read_text(encoding="utf-8").splitlines()
]

ROUNDS = (
    "In Flink, the first step of a group that repeats may leave its group after it has ignored an event: matches come "
    "several times, and what must follow directly, or as the next of its kind, need not."
)
TIES = "Of matches that begin with one event and end with one, Flink's heap decides which is emitted."
#: Cases in which the results differ, and the fault of Flink's.
DIFFERENT = {
    **dict.fromkeys(
        [f"group-{number}" for number in (4, 5, 7, 9, 13, 17, 18, 19, 20, 21, 28, 29)],
        ROUNDS,
    ),
    "skip-7": TIES,
    "skip-27": TIES,
    "not-end-9": "In Flink, a match whose last step repeats needs a further event to become pending.",
    "not-end-12": "Flink sets no timer for a time to the event before: without another event of the key, none is over.",
    "within-19": "Flink sets no timer for a partial match that begins at 0 ms.",
    "within-previous-6": "Flink ignores the time to the step before if the step repeats.",
    **dict.fromkeys(
        [f"within-previous-{number}" for number in (7, 8, 9, 12, 13, 15, 16, 17, 19)],
        "Flink applies the time between a step's events to the first one and the step before.",
    ),
    "within-previous-10": "As not-end-12.",
}
OPTIONAL = "Flink drops `optional` of the first step of a group in silence."
#: Cases that are rejected here, and why.
REJECTED = {
    "greedy-38": "Flink drops `greedy` in silence where combinations are allowed.",
    "group-27": "Flink drops a `not_followed_by` at the end of a group in silence.",
    "skip-miss-8": "A match never has the step that must not come, so the strategy would skip nothing.",
    **dict.fromkeys(("mixed-17", "mixed-35", "mixed-37", "mixed-52"), OPTIONAL),
}
#: Accepted here, and not by Flink.
ACCEPTED = {"refused-21": "A skip to a step of a group."}
#: Flink's job fails on an event: a strategy may throw. Here there is no such option; nothing is skipped instead.
FAILING = ("skip-miss-2", "skip-miss-4", "skip-miss-5")


def steps(of: Json) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(sorted((step, tuple(events)) for step, events in of.items()))


def test_the_lists_of_differences_name_cases() -> None:
    assert {*DIFFERENT, *REJECTED, *ACCEPTED, *FAILING} <= {case["id"] for case in CASES}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_the_result_is_that_of_flink(case: Json) -> None:
    expected = case["flink"]
    if case["id"] in ACCEPTED:
        assert "refused" in expected
        assert run(case)["matches"]
        return
    if "refused" in expected or case["id"] in REJECTED:
        with pytest.raises(ConfigError):
            run(case)
        return
    found = run(case)
    if "failed" in expected:
        assert case["id"] in FAILING
        return
    matches = Counter((key, steps(of)) for key, of in found["matches"])
    timeouts = Counter((key, steps(of), ms) for key, of, ms in found["timeouts"])
    same = (
        matches == Counter((m["key"], steps(m["steps"])) for m in expected["matches"])
        and timeouts == Counter((m["key"], steps(m["steps"]), m["timestamp"]) for m in expected["timeouts"])
        and sorted(found["late"]) == sorted(expected["late"])
    )
    assert same is (case["id"] not in DIFFERENT), f"{case['about']}: {found}"
