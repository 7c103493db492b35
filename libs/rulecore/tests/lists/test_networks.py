"""Lists of networks, compared with a search of all their entries by the standard library."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.errors import ListError
from rulecore.language import ListType
from rulecore.lists.content import ListContent, ListEntries
from rulecore.lists.files import build_store, load_lists
from rulecore.lists.keys import NEVER_MS
from rulecore.lists.records import ListHead, decode_head
from streamcore.schema import LONG, STRING

CLOCK_MS = 1_000
KIND = ListType("places", STRING, LONG)

_FOUR = st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 128, 255]), st.integers(8, 32)).map(
    lambda parts: f"10.{parts[0]}.0.{parts[1]}/{parts[2]}"
)
_SIX = st.tuples(st.integers(0, 3), st.sampled_from(["", "1", "ff00:1"]), st.integers(16, 128)).map(
    lambda parts: f"2001:db8:{parts[0]}::{parts[1]}/{parts[2]}"
)
NETWORKS = (_FOUR | _SIX).map(lambda text: str(ipaddress.ip_network(text, strict=False)))
ADDRESSES = (_FOUR | _SIX).map(lambda text: text.split("/")[0]) | st.sampled_from(
    ["", "x", "10.0.0.1/32", "010.0.0.1", "fe80::1%eth0", "::ffff:10.0.0.1", "255.255.255.255"]
)


def _brute(text: str, entries: dict[str, tuple[int, int]]) -> int | None:
    """Return the value of the longest valid network that contains an address, by looking at each."""
    try:
        address: Any = ipaddress.ip_address(text)
    except ValueError:
        return None
    around = [ipaddress.ip_network(net) for net, (_, end) in entries.items() if end > CLOCK_MS]
    around = [net for net in around if net.version == address.version and address in net and "%" not in text]
    best = max(around, key=lambda net: net.prefixlen, default=None)
    return None if best is None else entries[str(best)][0]


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(NETWORKS, st.tuples(st.integers(0, 99), st.sampled_from([1, CLOCK_MS + 1, NEVER_MS])), max_size=12),
    st.lists(ADDRESSES | st.none(), min_size=1, max_size=12),
)
def test_an_address_is_found_in_the_longest_prefix(
    entries: dict[str, tuple[int, int]], addresses: list[str | None]
) -> None:
    columns = [*entries], [value for value, _ in entries.values()], [end for _, end in entries.values()]
    content = ListContent(ListEntries.of(KIND, *columns, of_networks=True), CLOCK_MS)
    expected = [None if text is None else _brute(text, entries) for text in addresses]
    texts = pl.Series(addresses, dtype=pl.String)
    assert content.look_up(texts, STRING).to_list() == expected
    assert [content.get(text) for text in addresses] == expected
    is_in = [None if text is None else found is not None for text, found in zip(addresses, expected, strict=True)]
    assert content.holds(texts, STRING).to_list() == is_in
    assert [text in content for text in addresses] == [bool(found) for found in is_in]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["10.0.0.0/8", "ten"], "entry 2: 'ten' is no network, such as 10.0.0.0/8"),
        (["fe80::1%eth0"], "entry 1: 'fe80::1%eth0' is no network, such as 10.0.0.0/8; leave out zones and masks"),
        (
            ["10.0.0.0/0.0.0.255"],
            "entry 1: '10.0.0.0/0.0.0.255' is no network, such as 10.0.0.0/8; leave out zones and masks",
        ),
        (["10.0.0.1/8"], "entry 1: 10.0.0.1/8 has bits behind its prefix; did you mean 10.0.0.0/8?"),
        (["2001:db8::/32", "2001:DB8::/32"], "entry 2: the network 2001:db8::/32 is in the list twice"),
        (["10.0.0.1", "10.0.0.1/32"], "entry 2: the network 10.0.0.1/32 is in the list twice"),
    ],
)
def test_an_entry_that_is_no_network_or_twice_is_rejected(keys: list[str], message: str) -> None:
    with pytest.raises(ListError) as caught:
        ListEntries.of(ListType("n", STRING), keys, of_networks=True)
    assert str(caught.value) == message


def test_a_file_of_networks_has_the_line_of_a_wrong_one_and_is_published(tmp_path: Path) -> None:
    (tmp_path / "nets.yaml").write_text(
        "list: nets\nversion: 1\nowner: o\nof: string\nnetworks: true\nentries:\n  - 10.0.0.0/8\n  - 10.0.0.0/33\n"
    )
    _, (problem,) = load_lists(tmp_path)
    assert (problem.place.line, problem.message) == (8, "'10.0.0.0/33' is no network, such as 10.0.0.0/8")
    (tmp_path / "nets.yaml").write_text((tmp_path / "nets.yaml").read_text().replace("/33", "/24"))
    lists, problems = load_lists(tmp_path)
    assert not problems
    content = build_store(lists).contents(0)["nets"]
    assert ("10.9.9.9" in content, "11.0.0.0" in content) == (True, False)


def test_networks_are_texts_and_other_records_stay_as_they_were() -> None:
    with pytest.raises(ListError, match="a list of networks has texts"):
        decode_head(b'{"list": "n", "version": 1, "owner": "o", "of": "long", "networks": true}', 1_000)
    plain = ListHead(list="n", version=1, owner="o", of=STRING)
    assert b"networks" not in plain.canonical()
    assert decode_head(plain.model_copy(update={"networks": True}).canonical(), 1_000).networks
