"""No text in a rule runs, opens, fetches or exhausts anything: it is rejected, or it is plain data.

The texts are those of ``tests.harness.faults.hostile_texts``, with their origin; the process that reads them runs
in a sandbox, see ``tests.harness.faults.sandbox``.
"""

from __future__ import annotations

import pytest

from tests.harness.faults.hostile_cases import FREE, PLACES
from tests.harness.faults.hostile_texts import JSON, TEXTS, YAML
from tests.harness.faults.sandbox import Limits, Outcome, Report, failures, run_sandboxed

pytestmark = pytest.mark.slow

GROWTH_BYTES = 200 << 20
#: Valid conditions that only look dangerous: their cost is bounded, which the sandbox checks.
SOUND = {"redos in group_by", "redos in where", "like bomb in where"}
#: Valid documents that only look dangerous.
SOUND_DOCUMENTS = {"byte order mark as YAML"}


@pytest.fixture(scope="module")
def report() -> Report:
    return run_sandboxed("tests.harness.faults.hostile_cases", None, Limits(cpu_s=5, memory_bytes=512 << 20))


def outcomes_by_case(report: Report) -> dict[str, Outcome]:
    """Return the outcomes by case."""
    return {outcome.case: outcome for outcome in report.outcomes}


def test_there_are_many_texts_and_each_names_its_origin() -> None:
    everything = [*TEXTS, *YAML, *JSON]
    assert len(TEXTS) >= 60
    assert len({one.name for one in everything}) == len(everything)
    assert all(one.provenance and one.text for one in everything)


def test_every_text_is_rejected_or_harmless_and_the_process_ends_normally(report: Report) -> None:
    assert report.ended == ""
    assert len(report.outcomes) == len(TEXTS) * len(PLACES) + len(YAML) + len(JSON)
    assert failures([o for o in report.outcomes if o.raised]) == []
    assert {outcome.word for outcome in report.outcomes} == {"rejected", "harmless"}


def test_no_text_opens_imports_executes_or_connects_to_anything(report: Report) -> None:
    assert failures([o for o in report.outcomes if o.audit]) == []


def test_memory_and_time_stay_bounded(report: Report) -> None:
    print(f"{len(report.outcomes)} cases, {report.grown_bytes >> 20} MiB, longest {report.longest_cpu_s} CPU-seconds")
    assert report.grown_bytes < GROWTH_BYTES
    assert report.longest_cpu_s < 5


def test_texts_are_rejected_wherever_only_code_or_names_are_allowed(report: Report) -> None:
    found = outcomes_by_case(report)
    places = [place for place in PLACES if place not in FREE]
    taken = {f"{one.name} in {place}" for one in TEXTS for place in places} & {
        name for name, outcome in found.items() if outcome.word == "harmless"
    }
    assert taken == SOUND


def test_most_texts_are_plain_data_as_a_constant(report: Report) -> None:
    found = outcomes_by_case(report)
    rejected = {one.name for one in TEXTS if found[f"{one.name} in constant"].word == "rejected"}
    assert rejected == {"deep brackets", "deep not", "digits", "long name", "null byte", "terminal"}


def test_hostile_documents_are_rejected(report: Report) -> None:
    found = outcomes_by_case(report)
    names = [f"{one.name} as YAML" for one in YAML] + [f"{one.name} as JSON" for one in JSON]
    assert {name for name in names if found[name].word == "harmless"} == SOUND_DOCUMENTS


def test_the_sandbox_records_every_kind_of_forbidden_action() -> None:
    report = run_sandboxed("tests.harness.faults.forbidden_cases", None, Limits(cpu_s=2, memory_bytes=64 << 20))
    found = outcomes_by_case(report)
    for name, event in [
        ("open", "open"),
        ("import", "import"),
        ("exec", "exec"),
        ("socket", "socket."),
        ("fork", "os."),
    ]:
        assert any(recorded.startswith(event) for recorded in found[name].audit), (name, found[name])
    assert "MemoryError" in found["memory"].raised
    assert "RecursionError" in found["recursion"].raised
    assert "exit -" in report.ended
    assert "in endless" in report.ended
