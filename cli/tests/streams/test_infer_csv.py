"""``streams infer`` and ``check`` of files of CSV: the document that is written takes every line of the file."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml

from headgate.main import run

ROOT = Path(__file__).parents[3]
LINES = """\
order,at,Customer Name,price,paid,code
1,2026-11-02T08:00:01Z,Ann,12.50,true,007
2,2026-11-02T08:00:02Z,"B, b",3.00,false,008
3,2026-11-02T08:00:03Z,,1.25,true,009
"""


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_document_of_a_file_takes_all_its_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], delimiter: str
) -> None:
    file, document = tmp_path / "orders.csv", tmp_path / "orders.yaml"
    quoted = LINES.replace('"B, b"', "\0").replace(",", delimiter)
    file.write_text("\ufeff" + quoted.replace("\0", f'"B{delimiter} b"'))
    assert run(["streams", "infer", str(file)]) == 0
    document.write_text(capsys.readouterr().out)
    assert document.read_text().startswith("# The app that reads it has `format: {kind: csv, columns: [")
    fields = yaml.safe_load(document.read_text())["fields"]
    assert fields == {
        "order": "long",
        "at": "timestamp not null",
        "Customer_Name": {"type": "string", "from": "`Customer Name`"},
        "price": "decimal(7,2)",
        "paid": "boolean",
        "code": "string",
    }
    assert run(["streams", "check", str(file), "--stream", str(document)]) == 0
    assert "orders takes 3 of 3 records" in capsys.readouterr().out


def test_a_line_with_another_number_of_cells_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, document = tmp_path / "orders.csv", tmp_path / "orders.yaml"
    file.write_text(LINES)
    run(["streams", "infer", str(file)])
    document.write_text(capsys.readouterr().out)
    file.write_text(LINES + "4,2026-11-02T08:00:04Z\n")
    assert run(["streams", "check", str(file), "--stream", str(document)]) == 1
    assert f"{file}:5: " in capsys.readouterr().out


@pytest.mark.parametrize("head", ["a,a,b", "a,,b"])
def test_a_first_line_that_names_no_columns_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], head: str
) -> None:
    file = tmp_path / "orders.csv"
    file.write_text(f"{head}\n1,2,3\n")
    assert run(["streams", "infer", str(file)]) != 0
    assert "the first line must name each column, each name once" in capsys.readouterr().err


def test_files_of_csv_and_others_are_no_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text(LINES)
    (tmp_path / "b.jsonl").write_text("{}")
    assert run(["streams", "infer", str(tmp_path / "a.csv"), str(tmp_path / "b.jsonl")]) != 0
    assert "files of CSV or others, not both" in capsys.readouterr().err


def test_a_public_table_is_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sample = ROOT / "examples/events/samples/nyc311.csv"
    lines = sample.read_text().splitlines()
    file = tmp_path / "nyc311.csv"
    names = ["Unique Key", "Created Date", "Closed Date", *(f"c{n}" for n in range(100))]
    width = len(next(csv.reader(lines)))
    file.write_text("\n".join([",".join(names[:width]), *lines]) + "\n")
    assert run(["streams", "infer", str(file)]) == 1, "its times have a pattern, which a person writes"
    printed = capsys.readouterr()
    assert "no field has a time in every record" in printed.err
    assert len(yaml.safe_load(printed.out)["fields"]) > 3


def test_a_column_with_numbers_and_texts_is_text_and_a_time_in_another_form_needs_a_pattern(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines.csv"
    file.write_text("InvoiceNo,pieces,at\n536365,1,1/12/2010 08:26\nC536379,2,1/12/2010 08:28\n,,1/12/2010 08:29\n")
    assert run(["streams", "infer", str(file)]) == 1
    printed = capsys.readouterr()
    assert "  InvoiceNo: string " in printed.out
    assert "  pieces: long " in printed.out
    assert "no type fits all" not in printed.out
    assert "needs a pattern" in printed.err


def test_lines_of_a_log_have_a_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "access.log"
    file.write_text('10.0.0.1 - - [02/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8"\n')
    assert run(["streams", "infer", str(file)]) == 1
    assert "access-log" in capsys.readouterr().err
