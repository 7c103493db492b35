"""The window operator follows the transcripts, each step in a cut of its own, and no wrong transcript."""

from __future__ import annotations

from functools import partial

import pytest

from tests.harness.apps.window_operator import OperatorRunner
from tests.harness.oracles.transcripts import Mismatch, Transcript, load_all

RIGHT = [transcript for transcript in load_all() if not transcript.wrong]
WRONG = [transcript for transcript in load_all() if transcript.wrong]


@pytest.mark.quick_cases(12)
@pytest.mark.parametrize("transcript", RIGHT[::3], ids=lambda transcript: transcript.label)
def test_the_operator_follows_the_transcript(transcript: Transcript) -> None:
    transcript.run(OperatorRunner)


@pytest.mark.slow
@pytest.mark.parametrize("transcript", [*RIGHT[1::3], *RIGHT[2::3]], ids=lambda transcript: transcript.label)
def test_the_operator_follows_each_other_transcript(transcript: Transcript) -> None:
    transcript.run(OperatorRunner)


@pytest.mark.slow
@pytest.mark.parametrize("transcript", RIGHT, ids=lambda transcript: transcript.label)
def test_an_operator_that_restarts_at_every_step_follows_the_transcript(transcript: Transcript) -> None:
    transcript.run(partial(OperatorRunner, restarts=True))


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("transcript", WRONG, ids=lambda transcript: transcript.label)
def test_a_wrong_transcript_fails_in_its_last_step(transcript: Transcript) -> None:
    with pytest.raises(Mismatch) as failure:
        transcript.run(OperatorRunner)
    assert failure.value.step == len(transcript.steps)
