"""``streams infer`` and ``check`` of Avro container files: the document that is written takes every record of them."""

from __future__ import annotations

import io
from pathlib import Path

import fastavro
import pytest
import yaml

from headgate.main import run

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "userId", "type": "string"},
        {"name": "amount", "type": ["null", "double"]},
        {"name": "items", "type": {"type": "array", "items": "string"}},
    ],
}
T0 = 1_780_000_000_000


def orders(count: int, first: int = 0) -> list[dict[str, object]]:
    amounts = [None, 1.5]
    return [
        {"at": T0 + n, "userId": f"u{n}", "amount": amounts[n % 2], "items": ["a"] * (n % 3)}
        for n in range(first, first + count)
    ]


def container(records: list[dict[str, object]], codec: str = "null") -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, fastavro.parse_schema(SCHEMA), records, codec=codec, sync_interval=200)
    return file.getvalue()


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_the_document_of_container_files_takes_all_their_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], codec: str
) -> None:
    folder, document = tmp_path / "sample", tmp_path / "orders.yaml"
    folder.mkdir()
    (folder / "one.avro").write_bytes(container(orders(70), codec))
    (folder / "two.avro").write_bytes(container(orders(30, 70), codec))
    assert run(["streams", "infer", str(folder), "--name", "orders"]) == 0
    document.write_text(capsys.readouterr().out)
    found = yaml.safe_load(document.read_text())
    assert found["event_time"] == "at"
    assert {name: str(one["type"] if isinstance(one, dict) else one) for name, one in found["fields"].items()} == {
        "at": "timestamp not null",
        "userId": "string not null",
        "amount": "double",
        "items": "array<string>",
    }
    assert run(["streams", "check", str(folder), "--stream", str(document)]) == 0
    assert "orders takes 100 of 100 records" in capsys.readouterr().out


def test_a_record_that_does_not_fit_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, document = tmp_path / "orders.avro", tmp_path / "orders.yaml"
    file.write_bytes(container(orders(3)))
    document.write_text(
        "name: orders\nevent_time: at\nkeys: [[user]]\n"
        "fields: {at: timestamp not null, user: {type: string, from: userId}, amount: double not null}\n"
    )
    assert run(["streams", "check", str(file), "--stream", str(document)]) == 1
    printed = capsys.readouterr().out
    assert "orders takes 1 of 3 records" in printed
    assert f"{file} #1: " in printed


@pytest.mark.parametrize("kept", [3, 40, -20, -1])
def test_a_file_that_is_cut_off_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: int) -> None:
    file = tmp_path / "orders.avro"
    file.write_bytes(container(orders(30))[:kept])
    assert run(["streams", "infer", str(file)]) == 1
    assert "orders.avro: " in capsys.readouterr().err


def test_container_files_and_others_are_not_one_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.avro").write_bytes(container(orders(1)))
    (tmp_path / "b.json").write_text('{"at": 1}\n')
    assert run(["streams", "infer", str(tmp_path)]) == 1
    assert "not both" in capsys.readouterr().err
