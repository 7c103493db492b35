"""The reference follows the transcripts, and no wrong transcript."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamcore.windowing import ReferenceWindows
from tests.harness.oracles.transcripts import Mismatch, Transcript, TranscriptError, load, load_all

RIGHT = [transcript for transcript in load_all() if not transcript.wrong]
WRONG = [transcript for transcript in load_all() if transcript.wrong]


@pytest.mark.parametrize("transcript", RIGHT, ids=lambda transcript: transcript.label)
@pytest.mark.quick_cases(27)
def test_the_reference_follows_the_transcript(transcript: Transcript) -> None:
    transcript.run(ReferenceWindows)


@pytest.mark.parametrize("transcript", WRONG, ids=lambda transcript: transcript.label)
def test_a_wrong_transcript_fails_in_its_last_step(transcript: Transcript) -> None:
    with pytest.raises(Mismatch) as failure:
        transcript.run(ReferenceWindows)
    assert failure.value.step == len(transcript.steps)


def test_there_are_many_right_and_wrong_transcripts() -> None:
    assert len(RIGHT) >= 60
    assert len(WRONG) >= 10


def write_transcript(folder: Path, text: str) -> Path:
    path = folder / "some.yaml"
    path.write_text(text, encoding="utf-8")
    return path


STEP = "[{name: one, spec: {windows: {tumbling: {size_ms: 10}}}, steps: [{watermark: 1}, %s]}]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (STEP % "{watermark: 5, clok: 1}", "some.yaml: one: step 2.clok: Extra inputs"),
        (STEP % "{watermark: 5, clock: 1}", "some.yaml: one: step 2: .*exactly one of element"),
        (STEP % "{element: {at: soon}}", "some.yaml: one: step 2.element.at: .*valid integer"),
        ("[{name: one, name: two}]", "some.yaml: a key stands twice, line 1"),
        ("[{name: one, steps: []}]", "some.yaml: one: spec: Field required"),
        ("{name: one}", "some.yaml: a list of transcripts"),
        ("[7]", "some.yaml: transcript 1 is no mapping"),
    ],
)
def test_the_error_locates_a_mistake_in_a_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TranscriptError, match=message):
        load(write_transcript(tmp_path, text))


def test_two_transcripts_with_one_name_are_rejected(tmp_path: Path) -> None:
    one = STEP % "{watermark: 2}"
    with pytest.raises(TranscriptError, match="two transcripts are named 'one'"):
        load(write_transcript(tmp_path, f"{one[:-1]}, {one[1:]}"))


def test_a_difference_names_file_transcript_and_step(tmp_path: Path) -> None:
    wanted = "{element: {at: 3}, fires: [{window: [0, 10], pane: 0, timing: early, value: []}]}"
    (transcript,) = load(write_transcript(tmp_path, STEP % wanted))
    with pytest.raises(Mismatch, match=r"^some.yaml: one: step 2: panes\n  wanted: .*\n  seen:   \[\]$"):
        transcript.run(ReferenceWindows)
