"""Dead letters on a real broker: counted, shown, repaired and sent again, each once."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from conftest import NewTopic
from headgate.dead_letters.model import DeadLetter, DeadLetterFilter, Repair, SourcePosition, read_edits, to_dead_letter
from headgate.dead_letters.resend import ledger_topic_for, plan, read_dead_letters, replay
from headgate.errors import InputError
from headgate.main import run
from streamcore.errors import StreamError
from streamcore.kafka import data_clients as clients
from streamcore.kafka.readers import Record, read_topic
from streamcore.kafka.settings import KafkaSettings

pytestmark = pytest.mark.kafka

BAD = b'{"id": 1, "price": "twelve"}'


class Lane:
    """An event topic with its dead letters."""

    def __init__(self, kafka: KafkaSettings, new_topic: NewTopic) -> None:
        self.kafka, self.events, self.letters = kafka, new_topic("events", 2), new_topic("letters", 1)
        producer = clients.producer(kafka)
        for n in range(6):
            code = "bad_value" if n % 2 == 0 else "null_field"
            where = {"source_topic": self.events, "source_partition": n % 2, "source_offset": 100 + n}
            headers = [(k, str(v).encode()) for k, v in where.items()]
            headers += [("reason_code", code.encode()), ("reason", f"field {n} is wrong".encode())]
            producer.produce(self.letters, BAD, b"k%d" % n, 0, headers=headers)
        producer.produce(self.letters, b'{"id": 9}', None, 0, headers=[("reason_code", b"late"), ("reason", b"late")])
        producer.flush()

    def run(self, *words: str) -> int:
        """Run the command on this lane."""
        return run(["deadletters", *words, "--topic", self.letters, "--bootstrap", self.kafka.bootstrap])

    @property
    def sent(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Return the records of the event topic."""
        return [(r.partition, r.key, r.value) for r in read_topic(self.kafka, self.events)]


@pytest.fixture
def lane(kafka: KafkaSettings, new_topic: NewTopic) -> Lane:
    return Lane(kafka, new_topic)


def test_the_summary_counts_letters_by_code_with_an_example(lane: Lane, capsys: pytest.CaptureFixture[str]) -> None:
    assert lane.run("list", "--by", "code", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["code"], one["dead_letters"]) for one in found] == [("bad_value", 3), ("null_field", 3), ("late", 1)]
    assert found[0]["example"]["source"] == {"topic": lane.events, "partition": 0, "offset": 104}
    assert lane.run("list", "--code", "late") == 0
    assert "null_field" not in capsys.readouterr().out


def test_the_summary_tells_apart_inputs_and_fields(lane: Lane, capsys: pytest.CaptureFixture[str]) -> None:
    assert lane.run("list", "-o", "json") == 0
    found = {
        (one["code"], one["input"], one["field"]): one["dead_letters"] for one in json.loads(capsys.readouterr().out)
    }
    wanted: dict[tuple[str, str | None, str | None], int] = {
        **{("bad_value", lane.events, str(n)): 1 for n in (0, 2, 4)},
        **{("null_field", lane.events, str(n)): 1 for n in (1, 3, 5)},
        ("late", None, None): 1,
    }
    assert found == wanted
    assert lane.run("list", "--by", "input") == 0
    assert capsys.readouterr().out.split()[:5] == ["INPUT", "RECORDS", "LATEST", "EXAMPLE", "REASON"]
    assert lane.run("list", "--by", "colour") == 1
    assert "write some of code, input, field" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reason", "field"),
    [
        ("field price: found 'x'; accepted is a decimal", "price"),
        ("field created_at (from meta.dt) is missing; a timestamp is needed", "created_at (from meta.dt)"),
        ('field "price" occurs more than once; accepted is once', "price"),
        ("field id is null; a string is needed", "id"),
        ("the record is no JSON", None),
        ("fields are missing", None),
        ("", None),
    ],
)
def test_the_field_of_a_letter_is_the_one_that_its_reason_begins_with(reason: str, field: str | None) -> None:
    assert DeadLetter(0, 0, 0, "code", reason, None, None, None).field == field


def test_a_letter_is_shown_with_its_reason_and_its_bytes(lane: Lane, capsys: pytest.CaptureFixture[str]) -> None:
    assert lane.run("show", "0/2", "-o", "json") == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["value"] == BAD.decode()
    assert json.loads(line)["reason"] == "field 2 is wrong"


def test_repaired_letters_are_sent_to_their_source_topic_with_their_origin(lane: Lane) -> None:
    assert lane.run("replay", "--code", "bad_value", "--set", "price=12.5") == 0
    repaired = b'{"id":1,"price":12.5}'
    assert sorted(lane.sent) == [(0, b"k0", repaired), (0, b"k2", repaired), (0, b"k4", repaired)]
    first = read_topic(lane.kafka, lane.events)[0]
    assert first.header("replayed_from") == f"{lane.letters}/0/0".encode()
    assert first.header("replayed_code") == b"bad_value"


def test_a_second_replay_sends_nothing(lane: Lane, capsys: pytest.CaptureFixture[str]) -> None:
    assert lane.run("replay", "0/0-3") == 0
    assert lane.run("replay", "-o", "json") == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["sent"], result["sent_before"], result["without_source"]) == (2, 4, 1)
    assert len(lane.sent) == 6


def test_a_dry_run_sends_nothing_and_stores_nothing(lane: Lane, capsys: pytest.CaptureFixture[str]) -> None:
    assert lane.run("replay", "--dry-run", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["sent"] == 6
    assert lane.sent == []


def test_an_edit_replaces_the_value_of_the_letter_that_it_names(lane: Lane, tmp_path: Path) -> None:
    edits = tmp_path / "edits.jsonl"
    edits.write_text('{"at": "0/1", "value": "{\\"id\\": 2}"}\n{"at": "0/3", "value_base64": "AAE="}\n')
    assert lane.run("replay", "--edit", str(edits)) == 0
    assert sorted(lane.sent) == [(1, b"k1", b'{"id": 2}'), (1, b"k3", b"\x00\x01")]


def test_a_control_record_is_not_replayed_because_it_would_replace_a_later_one() -> None:
    source = SourcePosition("limits", 0, 41)
    letters = [DeadLetter(0, n, 0, code, "", b"k", b"v", source) for n, code in enumerate(("failed", "failed_control"))]
    assert [record.dedup_key for record in plan(letters, Repair({}, {}), "letters")] == ["0/0"]


def test_a_record_is_sent_again_with_the_headers_that_the_app_reads() -> None:
    names = ("source_topic", "source_partition", "source_offset", "reason_code", "source_header.ce_type")
    texts = (b"events", b"0", b"41", b"wrong_type", b"order")
    headers = tuple(zip(names, texts, strict=True))
    letter = to_dead_letter(Record("letters", 0, 7, 0, b"k", b"v", headers))
    (sent,) = plan([letter], Repair({}, {}), "letters")
    assert sent.headers[0] == ("ce_type", b"order")
    assert dict(sent.headers)["replayed_from"] == b"letters/0/7"


def test_two_replays_at_once_send_each_letter_once(lane: Lane) -> None:
    letters = [*read_dead_letters(lane.kafka, lane.letters, DeadLetterFilter())]
    parcels = plan(letters, Repair({}, {}), lane.letters)
    outcomes: list[object] = []

    def run_replay() -> None:
        try:
            outcomes.append(replay(lane.kafka, lane.letters, parcels))
        except StreamError as error:  # fenced by the other
            outcomes.append(error)

    threads = [threading.Thread(target=run_replay) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replay(lane.kafka, lane.letters, parcels) == 0 or len(outcomes) == 3
    assert sorted(key or b"" for _, key, _ in lane.sent) == [b"k%d" % n for n in range(6)]
    assert len({r.key for r in read_topic(lane.kafka, ledger_topic_for(lane.letters))}) == 6


def test_without_its_log_of_sent_letters_a_replay_sends_twice(lane: Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail."""
    monkeypatch.setattr("streamcore.kafka.idempotent_sender.sent_keys", lambda *_: set())
    parcels = plan([*read_dead_letters(lane.kafka, lane.letters, DeadLetterFilter())], Repair({}, {}), lane.letters)
    assert replay(lane.kafka, lane.letters, parcels) == replay(lane.kafka, lane.letters, parcels) == 6
    assert len(lane.sent) == 12


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"),
        ('{"at": "0/1"}', "value or value_base64"),
        ('{"at": "0/1", "value_base64": "%"}', "not base64"),
        ('{"at": "0/1", "value": "a"}\n{"at": "0/1", "value": "b"}', "twice"),
    ],
)
def test_an_invalid_edit_is_rejected_with_its_line(line: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "edits.jsonl"
    path.write_text(line)
    with pytest.raises(InputError, match=words):
        read_edits(path)
