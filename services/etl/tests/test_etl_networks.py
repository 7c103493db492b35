"""A list of networks: the longest prefix that has an entry gives the value of an address."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from random import Random

import pytest

from rulecore.language import ListType
from rulecore.lists.records import ListHead, list_records
from streamcore.engine.in_process import RawRecord, control_record
from streamcore.schema import STRING
from tests.harness.apps.small_etl import events, letters, load, rows, run

PREFIXES = (32, 28, 24, 16, 8)


def networks(entries: dict[str, str]) -> list[RawRecord]:
    kind = ListType("geo", STRING, STRING)
    head = ListHead(list=kind.name, version=1, owner="net", of=kind.of, value=kind.value, networks=True)
    found = list_records(head, [[key, value] for key, value in entries.items()])
    return [control_record(n, key, value) for n, (key, value) in enumerate(found)]


@pytest.mark.slow
def test_an_address_has_the_value_of_the_longest_prefix_in_the_list(tmp_path: Path) -> None:
    draw = Random(9)
    entries: dict[str, str] = {}
    for _ in range(60):
        bits = draw.choice(PREFIXES)
        address = f"10.{draw.randrange(3)}.{draw.randrange(3)}.{draw.randrange(256)}"
        entries[str(ipaddress.ip_network(f"{address}/{bits}", strict=False))] = f"z{draw.randrange(9)}"
    settings = load(
        tmp_path,
        {"id": "id", "ip": "ip"},
        model={"id": "string not null", "ip": "string", "zone": "string"},
        lists={"geo": {"of": "string", "value": "string"}},
        derive={"zone": "lookup('geo', ip)"},
    )
    addresses = [f"10.{draw.randrange(4)}.{draw.randrange(4)}.{draw.randrange(256)}" for _ in range(300)]
    output = run(settings, networks(entries), events(*({"ip": ip} for ip in [*addresses, "unknown"])))
    expected = []
    for text in addresses:
        covering = [net for net in map(ipaddress.ip_network, entries) if ipaddress.ip_address(text) in net]
        best = max(covering, key=lambda net: net.prefixlen, default=None)
        expected.append(None if best is None else entries[str(best)])
    assert letters(output) == []
    found = {row["id"]: row["zone"] for row in rows(output)}
    assert found == {f"o{number}": zone for number, zone in enumerate([*expected, None])}
    assert len({*expected}) > 4
