"""Commands decode records of a schema registry as the app does: with ``--settings``, the settings file of the app."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType

import pytest
import yaml

from conftest import NewRegistry, NewTopic
from headgate.main import run
from headgate.records.formats import read_formats
from streamcore.errors import ConfigError
from streamcore.kafka import data_clients as clients
from streamcore.kafka.settings import KafkaSettings
from tests.harness.apps import registered_orders
from tests.harness.apps.orders import Order

pytestmark = [pytest.mark.kafka, pytest.mark.registry, pytest.mark.slow]

SENT_MS = 1_790_000_000_000
STREAM = {
    "name": "orders",
    "event_time": "ts",
    "keys": [["user"]],
    "fields": {
        "id": "long not null",
        "ts": "timestamp not null",
        "user": "string not null",
        "kind": "string",
        "amount": "decimal(12,2)",
    },
}
RULE = {
    "id": "large",
    "version": 1,
    "owner": "me",
    "on": "orders",
    "where": "amount > 100",
    "then": {"severity": "low", "message": "{user}"},
}


@dataclasses.dataclass
class Folder:
    """Files of a user, and the commands that read them."""

    path: Path
    bootstrap: str
    capture: pytest.CaptureFixture[str]

    def write(self, topic: str, written: dict[str, object], **entries: object) -> None:
        for name in ("streams", "rules"):
            (self.path / name).mkdir()
        (self.path / "streams" / "orders.yaml").write_text(yaml.safe_dump(STREAM, sort_keys=False))
        (self.path / "rules" / "large.yaml").write_text(yaml.safe_dump(RULE, sort_keys=False))
        stream = {"schema_file": str(self.path / "streams" / "orders.yaml"), "topic": topic, "format": written}
        (self.path / "app.yaml").write_text(yaml.safe_dump({"app": "shop", "streams": [stream], **entries}))

    def run(self, *arguments: str, settings: bool = True) -> tuple[int, str]:
        more = ["--settings", str(self.path / "app.yaml")] if settings else []
        command = [*arguments, "--streams", str(self.path / "streams"), "--bootstrap", self.bootstrap, *more]
        code = run(command)
        out, err = self.capture.readouterr()
        return code, out + err


def order(number: int, amount: str) -> Order:
    return Order(id=number, ts=SENT_MS + number, user="ann", kind="buy", amount=Decimal(amount), country=None)


def send(
    kafka: KafkaSettings, topic: str, values: Sequence[bytes], headers: Mapping[int, bytes] = MappingProxyType({})
) -> None:
    """Send records. ``headers``: ids of schemas, by the number of the record that has it beside its value."""
    producer = clients.producer(kafka)
    for number, value in enumerate(values):
        own = {"__value_schema_id": headers[number]} if number in headers else {}
        producer.produce(topic, value, b"ann", timestamp=SENT_MS + number, headers=own)
    assert producer.flush(30) == 0


def test_commands_read_records_of_a_registry(
    tmp_path: Path,
    kafka: KafkaSettings,
    new_topic: NewTopic,
    new_registry: NewRegistry,
    capsys: pytest.CaptureFixture[str],
) -> None:
    registry, topic, folder = new_registry(), new_topic(), Folder(tmp_path, kafka.bootstrap, capsys)
    registry.start()
    folder.write(topic, {"kind": "registry"}, schema_registry={"url": registry.url})
    encoders: list[Callable[[Order], bytes]] = [
        registered_orders.register(registry, f"{topic}-value", version) for version in (1, 2)
    ]
    values = [encoders[n % 2](order(n, amount)) for n, amount in enumerate(["5", "500", "700", "1"])]
    send(kafka, topic, [*values, b"\0\0\0\xff\xff" + values[0][5:]])

    code, output = folder.run("streams", "check", "--topic", topic, "--stream", "orders")
    assert (code, output.splitlines()[0]) == (1, "orders takes 4 of 5 records")
    assert "schema" in output.splitlines()[1]

    rules = str(tmp_path / "rules")
    code, output = folder.run(
        "rules", "backtest", rules, "--topic", topic, "--from", "0", "--compare", "none", "-o", "json"
    )
    assert code == 0, output
    found = json.loads(output[output.index("{") :])
    assert (found["events"], [one["new"]["alerts"] for one in found["rules"]]) == (4, [2])

    explain = ("rules", "explain", "large", "--rules", rules)
    code, output = folder.run(*explain, "--event", f"{topic}:0:1")
    assert code == 0, output
    assert "500" in output
    code, output = folder.run(*explain, "--event", f"{topic}:0:4")
    assert "schema" in output, "a dead letter, with its reason"

    registry.kill()
    code, output = folder.run(*explain, "--event", f"{topic}:0:1")
    assert code != 0
    assert "is it up and reachable?" in output


def test_ids_in_headers_are_read_where_the_settings_say_so(
    tmp_path: Path,
    kafka: KafkaSettings,
    new_topic: NewTopic,
    new_registry: NewRegistry,
    capsys: pytest.CaptureFixture[str],
) -> None:
    registry, topic, folder = new_registry(), new_topic(), Folder(tmp_path, kafka.bootstrap, capsys)
    registry.start()
    folder.write(topic, {"kind": "registry", "id_in": "header"}, schema_registry={"url": registry.url})
    encode = registered_orders.register(registry, f"{topic}-value", 1)
    values = [encode(order(n, amount)) for n, amount in enumerate(["5", "500", "700"])]
    number, unknown = values[0][:5], b"\1" + bytes(range(16))
    send(kafka, topic, [values[0], values[1][5:], values[2][5:]], {1: number, 2: unknown})

    check = ("streams", "check", "--topic", topic, "--stream", "orders")
    code, output = folder.run(*check)
    assert (code, output.splitlines()[0]) == (1, "orders takes 2 of 3 records")
    assert "the schema registry has no schema 00010203-0405-0607-0809-0a0b0c0d0e0f" in output
    explain = ("rules", "explain", "large", "--rules", str(tmp_path / "rules"), "--event", f"{topic}:0:1")
    code, output = folder.run(*explain)
    assert code == 0, output
    assert "500" in output
    infer = ["streams", "infer", "--topic", topic, "--name", "found", "--bootstrap", kafka.bootstrap]
    code = run([*infer, "--registry", registry.url])
    output = capsys.readouterr().out
    assert "amount" in output, output

    (tmp_path / "app.yaml").write_text((tmp_path / "app.yaml").read_text().replace("id_in: header", "id_in: value"))
    assert folder.run(*check)[1].splitlines()[0] == "orders takes 1 of 3 records"


def test_settings_that_do_not_say_the_format_are_an_error(
    tmp_path: Path, kafka: KafkaSettings, new_topic: NewTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, folder = new_topic(), Folder(tmp_path, kafka.bootstrap, capsys)
    folder.write(topic, {"kind": "registry"})
    send(kafka, topic, [b"\0\0\0\0\1abc"])
    code, output = folder.run("streams", "check", "--topic", topic, "--stream", "orders")
    assert code != 0
    assert "the records name schemas of a registry, and the file has no schema_registry" in output
    for text, error in [("app: x", "neither streams nor inputs"), ("streams: [a]", "a list of inputs is needed")]:
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(ConfigError, match=error):
            read_formats(tmp_path / "bad.yaml")


def test_lines_of_csv_are_read_with_the_settings_of_an_etl_app(
    tmp_path: Path, kafka: KafkaSettings, new_topic: NewTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, folder = new_topic(), Folder(tmp_path, kafka.bootstrap, capsys)
    folder.write(topic, {"kind": "csv", "columns": ["id", "ts", "user", "kind", "amount"]})
    document = yaml.safe_load((tmp_path / "app.yaml").read_text())
    document["inputs"] = [document.pop("streams")[0] | {"map": {"id": "id"}}]
    (tmp_path / "app.yaml").write_text(yaml.safe_dump(document))
    send(kafka, topic, [b"1,%d,ann,buy,3.5" % SENT_MS, b"x,1,ann,buy,3"])
    code, output = folder.run("streams", "check", "--topic", topic, "--stream", "orders")
    assert (code, output.splitlines()[0]) == (1, "orders takes 1 of 2 records")
    code, output = folder.run("streams", "check", "--topic", topic, "--stream", "orders", settings=False)
    assert output.splitlines()[0] == "orders takes 0 of 2 records"
