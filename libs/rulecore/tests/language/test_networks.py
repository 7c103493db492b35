"""``cidr_match`` gives what Python's ``ipaddress`` gives, over columns and row by row."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.errors import ExpressionError
from rulecore.language import Scope, evaluate, parse
from rulecore.language.columnar.compiler import to_polars
from streamcore.schema import STRING

SCOPE = Scope({"ip": STRING})

V4 = st.builds(ipaddress.IPv4Address, st.integers(0, 2**32 - 1))
# Numbers of few bits at both ends have runs of zeros, which are written as ::
SPARSE = st.builds(lambda high, low: (high << 100) | low, st.integers(0, 2**28 - 1), st.integers(0, 2**20))
V6 = st.builds(ipaddress.IPv6Address, st.integers(0, 2**128 - 1) | SPARSE)


@st.composite
def networks(draw: st.DrawFn) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    address = draw(V4 | V6)
    return ipaddress.ip_network((address, draw(st.integers(0, address.max_prefixlen))), strict=False)


@st.composite
def texts_near(draw: st.DrawFn, network: Any) -> str:
    """Draw an address in or near the network in one of its spellings, or a text that is almost one."""
    bits = network.max_prefixlen
    inside = int(network.network_address) | draw(st.integers(0, int(network.hostmask)))
    flipped = inside ^ (1 << draw(st.integers(0, bits - 1)))
    address = type(network.network_address)(draw(st.sampled_from([inside, flipped])))
    spellings = [str(address), address.exploded]
    if bits == 128:
        tail = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        spellings += [str(address).upper(), ":".join(address.exploded.split(":")[:6]) + f":{tail}", f"::{tail}"]
    text: str = draw(st.sampled_from(spellings))
    if draw(st.integers(0, 3)):
        return text
    place = draw(st.integers(0, len(text)))
    return (
        text[:place]
        + draw(st.sampled_from(["", ":", "::", ".", "0", "00", "g", " ", "%1", "\n", "1.2.3.4"]))
        + text[place + 1 :]
    )


def matches(network: Any, texts: Sequence[str | None]) -> list[bool | None]:
    expr = parse(f"cidr_match(ip, '{network}')", SCOPE)
    frame = pl.DataFrame({"ip": pl.Series(texts, dtype=pl.String)})
    by_columns = frame.select(to_polars(expr).alias("r"))["r"].to_list()
    assert by_columns == [evaluate(expr, {"ip": text}) for text in texts], (network, texts)
    return by_columns


def expected(network: Any, text: str) -> bool:
    """Compare the addresses as numbers."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if "%" in text or address.version != network.version:
        return False
    return int(network.network_address) <= int(address) <= int(network.broadcast_address)


@settings(max_examples=300)
@given(st.data())
def test_an_address_is_in_a_network_when_its_number_is_between_the_first_and_the_last(data: st.DataObject) -> None:
    network = data.draw(networks())
    texts = [data.draw(texts_near(network)) for _ in range(4)] + [data.draw(texts_near(data.draw(networks())))]
    assert matches(network, texts) == [expected(network, text) for text in texts]


def test_null_gives_null_and_other_text_is_in_no_network() -> None:
    texts = [
        None,
        "",
        "::",
        "0.0.0.0",
        "1.2.3",
        "01.2.3.4",
        "1.2.3.4/8",
        "fe80::1%eth0",
        "1:2:3:4:5:6:7:8::",
        ":::",
        "日",
    ]
    assert matches("::/0", texts) == [None, False, True, *[False] * 8]
    assert matches("fe80::/10", texts) == [None, *[False] * 10]
    assert matches("0.0.0.0/0", texts) == [None, False, False, True, *[False] * 7]


def test_an_address_of_one_family_is_in_no_network_of_the_other() -> None:
    assert matches("::ffff:0:0/96", ["::ffff:10.0.0.1", "10.0.0.1"]) == [True, False]
    assert matches("10.0.0.0/8", ["::ffff:10.0.0.1", "10.0.0.1"]) == [False, True]


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("10.0.0.1/8", "has bits behind its prefix; did you mean '10.0.0.0/8'?"),
        ("10.0.0.0/33", "is no network; accepted here: '10.0.0.0/8'"),
        ("x" * 200, "is no network"),
    ],
)
def test_an_invalid_network_is_rejected_at_its_location(network: str, message: str) -> None:
    with pytest.raises(ExpressionError) as error:
        parse(f"cidr_match(ip, '{network}')", SCOPE)
    assert message in str(error.value)
    assert error.value.column == 16


def test_the_network_must_be_a_constant() -> None:
    with pytest.raises(ExpressionError, match="must be a constant string"):
        parse("cidr_match(ip, ip)", SCOPE)
