"""``headgate etl init`` and ``sessions init``: documents without mistakes that take every record of their sample."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.documents.checking import check_document
from headgate.documents.first_document import write_first_document
from headgate.documents.services import find_service
from headgate.errors import InputError
from headgate.main import run
from streamcore.schema import Kind

SAMPLES = Path(__file__).parents[3] / "examples" / "events" / "samples"
JSON_OR_CSV = sorted(path for path in SAMPLES.iterdir() if path.suffix in (".jsonl", ".csv"))


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("sample", JSON_OR_CSV, ids=lambda path: path.stem)
def test_the_documents_of_a_sample_have_no_mistakes(sample: Path, tmp_path: Path) -> None:
    user = None
    for service in ("etl", "sessions"):
        found = write_first_document(service, [sample], tmp_path / service, "mine", user, to_postgres=True)
        stream, settings = found.files
        assert (stream.name, settings.name) == ("mine.stream.yaml", f"mine.{service}.yaml")
        assert check_document(find_service(service), settings).problems == ()
        user = next((field.name for field in found.schema.fields if field.type.kind is Kind.STRING), "received")


def test_every_record_becomes_a_row_with_a_column_for_each_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        {"orderId": f"o{n % 9}", "user": {"name": "ann"}, "At": 1795600000 + n, "tags": ["a", n]} for n in range(9)
    ]
    Path("My orders.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert run(["etl", "init", "My orders.jsonl", "--to", "kafka"]) == 0
    assert "the event time is At, the id orderId" in capsys.readouterr().out
    assert run(["etl", "try", "my_orders.etl.yaml", "--sample", "My orders.jsonl", "-o", "json"]) == 0
    tried = json.loads(capsys.readouterr().out)
    assert [row["order_id"] for row in tried["rows"]["rows"]] == [f"o{n}" for n in range(9)]
    assert tried["rows"]["rows"][0] == {"order_id": "o0", "user_name": "ann", "at": "2026-11-25T09:46:40+00:00"}


def test_records_without_an_id_and_a_time_are_known_by_their_place_and_time_in_kafka(tmp_path: Path) -> None:
    sample = tmp_path / "a.csv"
    sample.write_text("city;people\nRome;3\nOslo;1\n")
    found = write_first_document("etl", [sample], tmp_path, None, None, to_postgres=True)
    stream, settings = found.files.values()
    assert "event_time: received" in stream
    assert "id: [kafka_partition, kafka_offset]" in settings
    assert "{table: public.a, key: [kafka_partition, kafka_offset]}" in settings
    assert 'format: {kind: csv, columns: ["city", "people"], delimiter: ";"}' in settings
    assert check_document(find_service("etl"), tmp_path / "a.etl.yaml").problems == ()


def test_what_is_there_is_not_overwritten_and_a_user_is_asked_for(tmp_path: Path) -> None:
    sample = tmp_path / "a.jsonl"
    sample.write_text('{"at": "2026-11-25T10:00:00Z", "x": 1}\n')
    with pytest.raises(InputError, match="no field looks like a user; name it with --user: at, x"):
        write_first_document("sessions", [sample], tmp_path, None, None, to_postgres=True)
    write_first_document("sessions", [sample], tmp_path, None, "x", to_postgres=True)
    again = write_first_document("sessions", [sample], tmp_path, None, "x", to_postgres=True)
    assert "fields: {user: x}" in again.files[tmp_path / "a.sessions.yaml"]
    (tmp_path / "a.stream.yaml").write_text("name: mine")
    with pytest.raises(InputError, match=r"a\.stream\.yaml: there already"):
        write_first_document("etl", [sample], tmp_path, None, None, to_postgres=True)
    assert not (tmp_path / "a.etl.yaml").exists()
