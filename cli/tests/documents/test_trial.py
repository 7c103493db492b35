"""Settings documents tried, tested, explained, compared and drawn, on real invoice lines and on public shapes."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from decimal import ROUND_HALF_UP, Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree as ET

import orjson
import polars as pl
import pytest
import yaml

from headgate.demo.app_process import AppProcess
from headgate.demo.shop.search_documents import PRODUCT_CHANGES, PRODUCT_COUNTS
from headgate.documents.mapping_tests import run_mapping_tests
from headgate.documents.run import load_document
from headgate.errors import InputError
from headgate.main import run
from headgate.programs.local_run import LocalOptions, LocalRun
from tests.harness.apps.cut_reports import cut_report

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "services/etl/example.yaml"
EVENTS = ROOT / "examples/events"
RATES = {"EUR": "0.85"}
EURO_COUNTRIES = ("EIRE", "Germany", "France")


def _printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert run([*arguments, "-o", "json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def lines() -> list[dict[str, Any]]:
    """The first lines of the real sample, as JSON; two of them spoilt, and one repeated."""
    rows = pl.read_parquet(ROOT / "tests/data/retail_sample.parquet").head(997).to_dicts()
    names = (
        "invoice_no",
        "stock_code",
        "description",
        "quantity",
        "invoice_date",
        "unit_price",
        "customer_id",
        "country",
    )
    found = []
    for row in rows:
        line = dict(zip(names, row.values(), strict=True))
        line["invoice_date"] = line["invoice_date"].isoformat(sep=" ")
        line["quantity"] = int(line["quantity"])
        line["unit_price"] = str(line["unit_price"])
        line["customer_id"] = None if line["customer_id"] is None else int(line["customer_id"])
        found.append(line)
    return [*found, found[0], found[1] | {"quantity": "many"}, found[2] | {"unit_price": "-1", "invoice_no": "x"}]


@pytest.fixture
def sample(tmp_path: Path, lines: list[dict[str, Any]]) -> Path:
    file = tmp_path / "lines.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines))
    return file


@pytest.fixture
def rates(tmp_path: Path) -> str:
    (tmp_path / "rates.yaml").write_text(yaml.safe_dump(RATES))
    return f"rates={tmp_path / 'rates.yaml'}"


def _expected(lines: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """What the document of the example means, in plain Python: the amount of each line by route."""
    found: dict[str, dict[str, str]] = {"sales": {}, "returns": {}}
    for line in lines[:997]:
        rate = Decimal(RATES["EUR"]) if line["country"] in EURO_COUNTRIES else Decimal(1)
        amount = line["quantity"] * Decimal(line["unit_price"]) * rate
        line_id = f"{line['invoice_no']}/{line['stock_code']}/{line['quantity']}"
        if Decimal(line["unit_price"]) < 0 or abs(line["quantity"]) > 100_000:
            continue
        route = found["sales" if line["quantity"] > 0 else "returns"]
        route.setdefault(line_id, str(amount.quantize(Decimal("0.01"), ROUND_HALF_UP) + 0))  # + 0: no minus zero
    return found


def test_try_gives_what_plain_python_gives_of_real_lines(
    capsys: pytest.CaptureFixture[str], lines: list[dict[str, Any]], sample: Path, rates: str
) -> None:
    found = _printed(capsys, "etl", "try", str(EXAMPLE), "--sample", str(sample), "--list", rates)
    expected = _expected(lines)
    assert len(expected["sales"]) > 900
    amounts = {lane: {row["line_id"]: row["amount"] for row in rows} for lane, rows in found["rows"].items()}
    assert {lane: set(found.items()) ^ set(amounts[lane].items()) for lane, found in expected.items()} == {
        "sales": set(),
        "returns": set(),
    }
    letters = {letter["place"]: letter["code"] for letter in found["dead_letters"]}
    assert letters == {f"{sample}:999": "wrong_type", f"{sample}:1000": "rule:price-not-negative"}
    rows = sum(map(len, found["rows"].values()))
    assert (found["records"], found["counted"]["duplicates"]) == (1_000, 1_000 - 2 - rows)


def test_the_text_of_try_has_routes_reasons_places_and_counts(
    capsys: pytest.CaptureFixture[str], sample: Path, rates: str
) -> None:
    assert run(["etl", "try", str(EXAMPLE), "--sample", str(sample), "--list", rates, "--rows", "1"]) == 0
    printed = capsys.readouterr().out
    assert f"{sample}:999: field quantity: found" in printed
    assert "sales: " in printed
    assert "more (--rows)" in printed
    assert printed.splitlines()[-1].startswith("1,000 records: ")


@pytest.mark.slow
def test_try_of_a_thousand_records_does_not_load_spark(sample: Path, rates: str) -> None:
    code = (
        "import sys\n"
        "from headgate.main import run\n"
        f"code = run(['etl', 'try', {str(EXAMPLE)!r}, '--sample', {str(sample)!r}, '--list', {rates!r}])\n"
        "print(code, 'pyspark' in sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    status, has_spark = done.stderr.split()[-2:]
    assert (status, has_spark) == ("0", "False")


@pytest.mark.slow
@pytest.mark.parametrize("file", [*sorted((EVENTS / "etl").glob("*.yaml")), EXAMPLE], ids=lambda file: file.stem)
def test_the_tests_in_the_documents_of_the_examples_pass(file: Path) -> None:
    results = run_mapping_tests(file)
    assert results
    assert [(one.name, one.diff) for one in results if not one.passed] == []


@pytest.mark.slow
def test_a_test_fails_with_the_differences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _example(tmp_path, "to_text(quantity)", "to_text(quantity + 1)")
    assert run(["etl", "test", str(file)]) == 1
    printed = capsys.readouterr().out
    assert 'sales: - missing  {"line_id":"536365/85123a/6"' in printed
    assert 'nearest: line_id: expected "536365/85123a/6", got "536365/85123a/7"' in printed
    found = _printed(capsys, "etl", "test", str(file), code=1)
    assert (found["passed"], [one["test"][:11] for one in found["failed"]]) == (1, ["a sale and "])


def test_a_test_that_names_no_route_or_column_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _example(tmp_path, "      sales: [{invoice:", "      sails: [{invoice:")
    found = _printed(capsys, "etl", "check", str(file), code=1)
    ((path, message),) = [(one["path"], one["message"]) for one in found["problems"]]
    assert path == "tests.1.expect.sails"
    assert "there are deadletters, sales, returns" in message


def _example(folder: Path, old: str, new: str) -> Path:
    text = EXAMPLE.read_text().replace("../../streams", str(ROOT / "streams"))
    assert old in text
    file = folder / "etl.yaml"
    file.write_text(text.replace(old, new))
    return file


@pytest.mark.slow
def test_explain_tells_which_stage_made_what(capsys: pytest.CaptureFixture[str], sample: Path, rates: str) -> None:
    def explain(record: int) -> Any:
        arguments = ("etl", "explain", str(EXAMPLE), "--sample", str(sample), "--list", rates)
        return _printed(capsys, *arguments, "--record", str(record))

    first = explain(1)
    stages = {stage["stage"]: stage for stage in first["stages"]}
    assert [*stages] == ["stream", "map", "derive", "mask", "route"]
    made = {column["name"]: column for column in stages["derive"]["columns"]}
    assert made["amount"] == {"name": "amount", "value": "2.75", "how": "round(quantity * price * rate, 2)"}
    assert stages["mask"]["columns"] == [{"name": "customer", "value": "***67", "how": "keep_last"}]
    assert stages["route"]["decisions"] == ["sales: taken    <- quantity > 0", "returns: not taken    <- quantity <= 0"]
    assert explain(998)["stages"][-1]["decisions"] == [
        "the row is a duplicate: a row with its id came before it (line_id = 547223/22417/5)"
    ]
    unreadable = explain(999)
    assert (unreadable["stages"], [one["code"] for one in unreadable["dead_letters"]]) == ([], ["wrong_type"])
    broken = explain(1000)
    assert broken["stages"][-1]["decisions"] == ["rejected: rule:price-not-negative"]
    assert run(["etl", "explain", str(EXAMPLE), "--sample", str(sample), "--record", "1001"]) == 1
    assert "the sample has 1000 records" in capsys.readouterr().err


def test_explain_shows_each_row_that_an_array_gives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {"Records": [{"eventID": f"e{n % 11}", "eventTime": "2026-11-02T08:30:00Z"} for n in range(12)]}
    (tmp_path / "file.jsonl").write_text(json.dumps(record))
    document = yaml.safe_load((EVENTS / "etl/cloudtrail_files.yaml").read_text())
    document["inputs"][0]["schema_file"] = str(EVENTS / "streams/cloudtrail_files.yaml")
    file = tmp_path / "files.yaml"
    file.write_text(yaml.safe_dump(document | {"deduplicate": {"horizon_ms": 1000}}))
    stages = _printed(capsys, "etl", "explain", str(file), "--sample", str(tmp_path / "file.jsonl"))["stages"]
    mapped = [stage for stage in stages if stage["stage"] == "map"]
    assert [stage.get("row") for stage in mapped] == [*range(1, 11), None]
    assert mapped[10]["decisions"] == ["and 2 rows more"]
    values = [{column["name"]: column["value"] for column in stage["columns"]} for stage in mapped[:10]]
    assert [(value["id"], value["number"]) for value in values] == [(f"e{n}", n) for n in range(10)]
    assert [stage["decisions"][0] for stage in stages if stage["stage"] == "route"][10] == "and 1 row more"
    (duplicate,) = [stage["decisions"][0] for stage in stages if stage["stage"] == "deduplicate"]
    assert duplicate == "the row is a duplicate: a row with its id came before it (id = e0)"


@pytest.mark.slow
def test_a_test_gives_its_records_a_time_a_key_and_headers(tmp_path: Path) -> None:
    document = yaml.safe_load((EVENTS / "etl/github_events.yaml").read_text())
    document["inputs"][0]["schema_file"] = str(EVENTS / "streams/github_events.yaml")
    (test,) = document["tests"]
    test["records"][0]["_kafka"]["headers"]["X-GitHub-Event"] = "label"
    test["records"][1]["_kafka"]["timestamp"] = "soon"
    file = tmp_path / "events.yaml"
    file.write_text(yaml.safe_dump(document))
    (result,) = run_mapping_tests(file)
    assert "record 2: _kafka.timestamp: no time such as 2026-11-02T09:00:00Z: 'soon'" in result.diff[0]
    test["records"][1]["_kafka"]["timestamp"] = "2026-11-02T09:00:02Z"
    file.write_text(yaml.safe_dump(document))
    (result,) = run_mapping_tests(file)
    assert any("events: - missing" in line and '"issues.edited"' in line for line in result.diff)


@pytest.mark.slow
def test_diff_shows_rows_and_letters_that_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sample: Path, rates: str
) -> None:
    given = ("--sample", str(sample), "--list", rates)
    assert _printed(capsys, "etl", "diff", str(EXAMPLE), str(EXAMPLE), *given)["lanes"] == {"sales": [], "returns": []}
    new = _example(tmp_path, "price-not-negative: price >= 0", "price-not-negative: price >= -1")
    new.write_text(new.read_text().replace("when: quantity > 0", "when: quantity > 5").replace("rate, 2)", "rate, 1)"))
    found = _printed(capsys, "etl", "diff", str(EXAMPLE), str(new), *given, code=1)
    changes = [one["change"] for one in found["lanes"]["sales"]]
    assert changes.count("vanishes") > 0
    assert {one["change"] for one in found["lanes"]["returns"]} == {"changed"}
    changed = next(one for one in found["lanes"]["sales"] if one["change"] == "changed")
    assert [*changed["columns"]] == ["amount"]
    assert any(one["old"] and one["old"]["code"] == "rule:price-not-negative" for one in found["dead_letters"])
    assert any(one["new"] and one["new"]["code"] == "no_route" for one in found["dead_letters"])
    assert run(["etl", "diff", str(EXAMPLE), str(tmp_path / "lines.jsonl"), *given]) == 2


class _Crm(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        body = b'{"city": "Oslo"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def crm() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), _Crm)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_look_up_is_answered_from_a_file_or_really_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], crm: int
) -> None:
    document = {
        "app": "crm",
        "kafka": {"bootstrap": "127.0.0.1:1"},
        "checkpoint": "unused",
        "inputs": [
            {
                "schema_file": str(EVENTS / "streams/stripe.yaml"),
                "topic": "stripe",
                "map": {"id": "id", "customer": "customer"},
            }
        ],
        "model": {"id": "string not null", "customer": "string", "city": "string"},
        "id": ["id"],
        "lookup": {"url": f"http://127.0.0.1:{crm}/c/{{key}}", "key": "customer", "adds": ["city"]},
        "routes": [{"name": "rows", "columns": ["customer", "city"]}],
    }
    file, answers = tmp_path / "crm.yaml", tmp_path / "answers.json"
    file.write_text(yaml.safe_dump(document))
    answers.write_text('{"cus_1": {"city": "Bergen"}, "cus_2": null}')
    given = ("etl", "try", str(file), "--sample", str(EVENTS / "samples/stripe.jsonl"), "--limit", "6")
    found = _printed(capsys, *given, "--lookup", str(answers))
    cities = {row["customer"]: row["city"] for row in found["rows"]["rows"]}
    assert (cities["cus_1"], cities["cus_2"], _Crm.asked) == ("Bergen", None, [])
    found = _printed(capsys, *given)
    assert {row["city"] for row in found["rows"]["rows"]} == {"Oslo"}
    assert sorted(set(_Crm.asked)) == [f"/c/cus_{n}" for n in range(6)]


@pytest.mark.slow
def test_sessions_and_search_are_tried_in_the_same_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kafka = {"kafka": {"bootstrap": "127.0.0.1:1"}, "checkpoint": "unused"}
    shop, changes = str(ROOT / "streams/shop.yaml"), str(ROOT / "streams/products.yaml")
    events = [
        {"event_id": f"e{n}", "ts": 1_760_000_000_000 + ms, "type": kind, "session_id": "s", "user_id": user}
        | {"product_id": "p1", "country": "DE", "ip": "10.0.0.1"}
        for n, (ms, kind, user) in enumerate([(0, "view", "u1"), (60_000, "view", "u1"), (4_000_000, "view", "u1")])
    ]
    (tmp_path / "shop.jsonl").write_text("\n".join(map(json.dumps, [*events, {"ts": "soon"}])))
    product = {"product_id": "p1", "op": "upsert", "name": "Lamp", "price": "9.90", "updated_at": 1_760_000_000_000}
    (tmp_path / "products.jsonl").write_text(json.dumps(product))
    sessions, search = tmp_path / "sessions.yaml", tmp_path / "search.yaml"
    sessions.write_text(
        yaml.safe_dump({**kafka, "stream": {"schema_file": shop, "topic": "shop"}, "dashboard_metrics": None})
    )
    indexes = {"documents": {"alias": "products", "id": ["id"], "deleted": "deleted"}}
    inputs = {
        "documents": [{"schema_file": changes, "topic": "products", **PRODUCT_CHANGES}],
        "counters": [{"schema_file": shop, "topic": "shop", **PRODUCT_COUNTS}],
    }
    search.write_text(
        yaml.safe_dump({**kafka, **inputs, "opensearch": {"hosts": ["http://nowhere:9200"], "indexes": indexes}})
    )
    found = _printed(capsys, "sessions", "try", str(sessions), "--sample", str(tmp_path / "shop.jsonl"))
    final = [row for row in found["rows"]["sessions"] if row["is_final"]]
    assert sorted((row["user_id"], row["events"], row["duration_ms"]) for row in final) == [
        ("u1", 1, 0),
        ("u1", 2, 60_000),
    ]
    assert [letter["place"] for letter in found["dead_letters"]] == [f"{tmp_path}/shop.jsonl:4"]
    given = [f"--sample=products={tmp_path}/products.jsonl", f"--sample=shop={tmp_path}/shop.jsonl"]
    found = _printed(capsys, "search", "try", str(search), *given)
    latest = found["rows"]["documents"][-1]
    assert (latest["id"], latest["name"], latest["views_1d"]) == ("p1", "Lamp", 3)
    assert run(["search", "try", str(search), "--sample", str(tmp_path / "shop.jsonl")]) == 1
    assert "the app has several inputs; write --sample products=... and --sample shop=..." in capsys.readouterr().err


def test_the_picture_is_an_svg_with_all_parts_of_the_document(tmp_path: Path) -> None:
    picture = tmp_path / "etl.svg"
    assert run(["etl", "graph", str(EXAMPLE), "--to", str(picture)]) == 0
    root = ET.parse(picture).getroot()
    texts = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    for part in ("topic retail", "map", "deduplicate", "derive", "list rates", "rules", "mask", "topic etl.sales"):
        assert part in texts
    assert not [one for one in picture.read_text().split('"') if one.startswith("http") and "w3.org" not in one]
    right = max(
        float(box.get("x", 0)) + float(box.get("width", 0)) for box in root.iter("{http://www.w3.org/2000/svg}rect")
    )
    assert right <= float(root.get("width", 0))


@pytest.mark.parametrize("verb", ["try", "explain", "test", "graph"])
def test_each_verb_lists_the_mistakes_with_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    file = _example(tmp_path, "app: etl", "app: etl\nshrds: 1")
    file.write_text(file.read_text().replace("unit_price\n", "unit_prize\n"))
    sample = () if verb in ("test", "graph") else ("--sample", str(tmp_path))
    assert run(["etl", verb, str(file), *sample]) == 1
    printed = capsys.readouterr().err.splitlines()
    assert printed[0] == f"headgate: {file} cannot be used as it is:"
    assert [line.removeprefix(f"{file}:").split(": ")[0] for line in printed[1:]] == ["3:1", "18:14"]


def test_run_says_all_mistakes_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _example(tmp_path, "shards: 4" if "shards: 4" in EXAMPLE.read_text() else "app: etl", "app: etl\nshrds: 1")
    file.write_text(file.read_text().replace("unit_price", "unit_prize"))
    assert run(["etl", "run", str(file)]) == 1
    printed = capsys.readouterr().err
    assert "unknown entry; did you mean shards?" in printed
    assert "unknown column unit_prize" in printed
    assert run(["up", "etl", "--settings", str(file)]) == 1
    assert "unknown column unit_prize" in capsys.readouterr().err
    assert run(["up", "etl", "--settings", str(file), "--rate", "5"]) == 2
    assert "--rate is for the demo" in capsys.readouterr().err


def test_run_takes_its_own_jars_where_the_document_names_none_of_this_machine(tmp_path: Path) -> None:
    messages: list[str] = []
    loaded = load_document("etl", EXAMPLE, ["kafka.bootstrap='127.0.0.1:1'"])
    local = LocalRun(loaded, LocalOptions(None, 1, fresh=False, keep_broker=False), messages.append)
    assert not local._has_jars()
    assert "no jars on this machine; those of headgate jars are used" in messages[0]
    (tmp_path / "a.jar").touch()
    loaded = load_document("etl", EXAMPLE, [f"jars='{tmp_path}'"])
    assert LocalRun(loaded, LocalOptions(None, 1, fresh=False, keep_broker=False), messages.append)._has_jars()
    with pytest.raises(InputError, match="cannot be used"):
        load_document("etl", ROOT / "streams/shop.yaml", [])


def test_the_live_view_of_a_document_shows_the_newest_event_and_what_holds_the_watermark_back(tmp_path: Path) -> None:
    report = replace(cut_report(), offsets={"retail": {"0": 7, "1": 0}, "other": {"0": 9}}, events=7)
    report = replace(report, newest_event_ms=1_291_207_380_000, watermarks={"retail": {"0": 1_291_207_379_999}})
    loaded = load_document("etl", EXAMPLE, ["kafka.bootstrap='127.0.0.1:1'"])
    local = LocalRun(loaded, LocalOptions(None, 1, fresh=False, keep_broker=False), print)
    local._app = AppProcess(loaded.module, loaded.settings_file, tmp_path / "app.log", ["retail"])
    document = {"cut": asdict(report), "lag": {"ms": 0}}
    local._app._read(io.BytesIO(orjson.dumps(document)))
    local._counted_s = math.inf  # no Kafka is asked
    figures = local._figures("running")
    assert (figures.newest_event_ms, figures.watermark_ms, figures.silent_partitions) == (1_291_207_380_000, None, 1)


def test_sessions_of_lines_of_a_log_are_tried_in_its_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "access.yaml").write_text(
        "name: access\nevent_time: at\nfields:\n"
        "  at: {type: timestamp not null, from: time}\n  ip: {type: string, from: remote_host}\n  path: string\n"
    )
    (tmp_path / "visits.yaml").write_text(
        "app: visits\nkafka: {bootstrap: '127.0.0.1:1'}\ncheckpoint: /data/visits\nfields: {user: ip}\n"
        "stream: {schema_file: access.yaml, topic: access, format: {kind: access-log}}\n"
        "columns: {landing: first(path)}\ngap: {gap_ms: 60000}\n"
    )
    times = ["10:00:00", "10:00:30", "10:05:00"]
    lines = [f'10.0.0.1 - - [02/Nov/2026:{at} +0000] "GET /{at} HTTP/1.1" 200 5 "-" "curl/8"' for at in times]
    (tmp_path / "access.log").write_text("\n".join(lines))
    found = _printed(
        capsys, "sessions", "try", str(tmp_path / "visits.yaml"), "--sample", str(tmp_path / "access.log"), "-o", "json"
    )
    rows = [row for row in found["rows"]["sessions"] if not row["is_deleted"]]
    assert {(row["landing"], row["events"]) for row in rows if row["started_at"].startswith("2026-11-02T10:00:00")} >= {
        ("/10:00:00", 2)
    }


def test_a_table_takes_no_sample_and_its_rows_come_from_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "orders.yaml").write_text(
        "name: orders\nevent_time: at\nfields: {at: timestamp not null, id: string, country: string}\n"
    )
    document = tmp_path / "etl.yaml"
    document.write_text(
        "app: orders\nkafka: {bootstrap: '127.0.0.1:1'}\ncheckpoint: /data/orders\n"
        "inputs: [{schema_file: orders.yaml, topic: orders, map: {id: id, country: country}}]\n"
        "model: {id: string, country: string, title: string}\nid: [id]\nroutes: [{name: rows}]\n"
        "lookups: {title: {key: country, adds: [title], table: {topic: countries}}}\n"
    )
    sample, answers = tmp_path / "orders.jsonl", tmp_path / "countries.yaml"
    sample.write_text('{"at": "2026-11-02T10:00:00Z", "id": "a", "country": "DE"}\n')
    answers.write_text("DE: {title: Germany}\n")
    command = ["etl", "try", str(document), "--sample", str(sample), "-o", "json"]
    assert [row["title"] for row in _printed(capsys, *command)["rows"]["rows"]] == [None]
    found = _printed(capsys, *command, "--lookup", str(answers))
    assert [row["title"] for row in found["rows"]["rows"]] == ["Germany"]
