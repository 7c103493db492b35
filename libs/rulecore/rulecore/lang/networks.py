"""``cidr_match``: whether a text is an address of a network, without a Python function over the rows.

An address is what RFC 791 and RFC 4291 write: four numbers of 0 to 255 without leading zeros; or eight groups of one to
four hexadecimal digits, one run of zeros left out as ``::``, the last two groups perhaps as an IPv4 address. Anything
else (a zone, a port, a blank, no address at all) is in no network, and an address of one family is in no network of
the other one. IPv4 networks become one regular expression, IPv6 networks a comparison of groups.
"""

from __future__ import annotations

import ipaddress

import polars as pl

from rulecore.errors import TypeMismatch

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_GROUP = "[0-9A-Fa-f]{1,4}"
_GROUPS = f"(?:{_GROUP}(?::{_GROUP}){{0,6}})?"
_IPV6 = rf"\A(?:{_GROUP}(?::{_GROUP}){{7}}|{_GROUPS}::{_GROUPS})\z"


def read_network(text: str) -> Network:
    """``10.0.0.0/8``, ``2001:db8::/32``, or one address; ``TypeMismatch`` says what is wrong."""
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        pass
    try:
        wider = ipaddress.ip_network(text, strict=False)
    except ValueError:
        message = f"cidr_match: {text[:60]!r} is no network"
        raise TypeMismatch(message, "accepted here: '10.0.0.0/8' or '2001:db8::/32'", 1) from None
    raise TypeMismatch(f"cidr_match: {text} has bits behind its prefix", f"did you mean '{wider}'?", 1)


def in_network(text: pl.Expr, network: Network) -> pl.Expr:
    """TRUE, FALSE, or NULL for NULL."""
    if isinstance(network, ipaddress.IPv4Network):
        return text.str.contains(rf"\A{_ipv4_pattern(network)}\z")
    return _in_ipv6(text, network)


def _ipv4_pattern(network: ipaddress.IPv4Network) -> str:
    """The fixed numbers, the one that the prefix ends in, and any number for the others."""
    whole, bits = divmod(network.prefixlen, 8)
    octets = network.network_address.packed
    parts = [str(octet) for octet in octets[:whole]]
    if bits:
        numbers = range(octets[whole], octets[whole] + 2 ** (8 - bits))
        parts.append(f"(?:{'|'.join(map(str, numbers))})")
    return r"\.".join([*parts, *[_OCTET] * (4 - len(parts))])


def _in_ipv6(text: pl.Expr, network: ipaddress.IPv6Network) -> pl.Expr:
    """Valid, and each group that the prefix reaches into begins with the network's bits."""
    hexadecimal = text.str.replace(f":{_IPV4}$", ":0:0")
    ends = hexadecimal.str.split("::")
    before, after = (_texts(ends.list.get(i, null_on_oob=True)) for i in (0, 1))
    written = before.list.len().cast(pl.Int64) + after.list.len().cast(pl.Int64)
    zeros = pl.lit("0").repeat_by((8 - written).clip(0))
    groups = pl.concat_list([before, zeros, after])
    holds = hexadecimal.str.contains(_IPV6) & (~hexadecimal.str.contains("::", literal=True) | (written < 8))
    for index, (bits, value) in enumerate(_prefix(network)):
        group = groups.list.get(index, null_on_oob=True).str.to_integer(base=16, strict=False, dtype=pl.Int64)
        if index >= 6:
            group = pl.coalesce(_ipv4_half(text, index - 6), group)
        holds &= (group // 2 ** (16 - bits) == value).fill_null(value=False)
    return holds


def _texts(end: pl.Expr) -> pl.Expr:
    """The groups on one side of ``::``; none where nothing is written."""
    return end.fill_null("").str.extract_all("[^:]+")


def _prefix(network: ipaddress.IPv6Network) -> list[tuple[int, int]]:
    """For each group that the prefix reaches into: how many of its bits, and their value."""
    packed, left = network.network_address.packed, network.prefixlen
    found = []
    for index in range(0, 16, 2):
        bits = min(16, max(0, left - index * 8))
        if bits:
            found.append((bits, int.from_bytes(packed[index : index + 2]) >> (16 - bits)))
    return found


def _ipv4_half(text: pl.Expr, half: int) -> pl.Expr:
    """The first or second 16 bits of the IPv4 address at the end; NULL where there is none."""
    octets = text.str.extract(f":({_IPV4})$").str.split(".")
    high, low = (octets.list.get(2 * half + i, null_on_oob=True).cast(pl.Int64, strict=False) for i in (0, 1))
    return high * 256 + low
