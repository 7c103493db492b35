"""Makes the cases that Flink's CEP library judges: `python -m tests.flink_cep.generate CASES.jsonl`."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from tests.flink_cep.case_builder import Cases, Json
from tests.flink_cep.themes import after_match, composed, drawn, in_time, one_step

SEED = 19

_THEMES = (
    one_step.contiguity,
    one_step.quantifiers,
    one_step.optional,
    one_step.greedy,
    after_match.skips,
    one_step.until,
    composed.groups,
    composed.iterative,
    composed.negation,
    in_time.within,
    in_time.time_order,
    after_match.refused,
)


def generate() -> list[Json]:
    cases = Cases()
    for theme in _THEMES:
        theme(cases)
    drawn.mixed(cases, random.Random(SEED))
    return cases.rows


def main() -> None:
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in generate()), encoding="utf-8")


if __name__ == "__main__":
    main()
