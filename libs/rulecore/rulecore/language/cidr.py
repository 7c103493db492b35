"""``cidr_match``: whether a text is an address of a network. A network becomes one regular expression.

An address has the form of RFC 791 and RFC 4291: four numbers of 0 to 255 without leading zeros; or eight groups of one
to four hexadecimal digits, one run of zeros left out as ``::``, the last two groups perhaps as an IPv4 address.
Anything else (a zone, a port, a blank, no address at all) is in no network, and an address of one family is in no
network of the other one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rulecore.errors import ExpressionTypeError

if TYPE_CHECKING:
    import polars as pl

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_GROUPS = 8
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_GROUP = "[0-9a-f]{1,4}"
_DIGITS = "0123456789abcdef"


def read_network(text: str) -> Network:
    """Read ``10.0.0.0/8``, ``2001:db8::/32``, or one address; raise ``ExpressionTypeError`` for a fault."""
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        pass
    try:
        wider = ipaddress.ip_network(text, strict=False)
    except ValueError:
        message = f"cidr_match: {text[:60]!r} is no network"
        raise ExpressionTypeError(message, "accepted here: '10.0.0.0/8' or '2001:db8::/32'", 1) from None
    raise ExpressionTypeError(f"cidr_match: {text} has bits behind its prefix", f"did you mean '{wider}'?", 1)


def in_network(text: pl.Expr, network: Network) -> pl.Expr:
    """Return whether a text is an address of the network; NULL for NULL."""
    if isinstance(network, ipaddress.IPv4Network):
        return text.str.contains(rf"\A{_ipv4(network.network_address.packed, network.prefixlen)}\z")
    return text.str.contains(rf"\A(?i:{'|'.join(_Ipv6(network).forms())})\z")


def _ipv4(packed: bytes, prefix: int) -> str:
    """Return the pattern of the IPv4 addresses with this prefix, which is ``prefix`` bits long."""
    whole, bits = divmod(prefix, 8)
    parts = [str(octet) for octet in packed[:whole]]
    if bits:
        numbers = range(packed[whole], packed[whole] + 2 ** (8 - bits))
        parts.append(f"(?:{'|'.join(map(str, numbers))})")
    return r"\.".join([*parts, *[_OCTET] * (4 - len(parts))])


class _Ipv6:
    """The patterns of the addresses of an IPv6 network, which can be written in many ways.

    ``groups``: the pattern of each group. ``zero``: whether it may be zero. ``tail``: the pattern of the last two
    groups as an IPv4 address. ``reached``: the number of groups that the prefix determines, at least in part.
    """

    def __init__(self, network: ipaddress.IPv6Network) -> None:
        packed, prefix = network.network_address.packed, network.prefixlen
        digits = [_digit(packed, prefix, index) for index in range(4 * _GROUPS)]
        self.groups = [_group(digits[i : i + 4]) for i in range(0, len(digits), 4)]
        self.zero = [all("0" in digit for digit in digits[i : i + 4]) for i in range(0, len(digits), 4)]
        self.tail = _ipv4(packed[12:], max(0, prefix - 96))
        self.reached = -(-prefix // 16)

    def forms(self) -> Iterator[str]:
        """Yield a pattern for each form: all groups; or ``before`` groups, ``::`` and ``after`` groups."""
        yield self.format_groups(0)
        for before in range(_GROUPS):
            head = ":".join(self.groups[:before])
            if all(self.zero[before : self.reached]):
                yield f"{head}::{self.anything(_GROUPS - 1 - max(before, self.reached - 1))}"
            for after in range(max(1, _GROUPS + 1 - self.reached), _GROUPS - before):
                if all(self.zero[before : _GROUPS - after]):
                    yield f"{head}::{self.format_groups(_GROUPS - after)}"

    def format_groups(self, first: int) -> str:
        """Return the pattern of the groups from ``first`` to the last, the last two perhaps as an IPv4 address."""
        plain = ":".join(self.groups[first:])
        if _GROUPS - first < 2:
            return plain
        return f"(?:{plain}|{':'.join([*self.groups[first:-2], self.tail])})"

    def anything(self, max_groups: int) -> str:
        """Return the pattern of at most ``max_groups`` groups after ``::``, none of which the prefix determines."""
        if max_groups <= 0:
            return ""
        mapped = f"|(?:{_GROUP}:){{0,{max_groups - 2}}}{self.tail}" if max_groups >= 2 else ""
        return f"(?:{_GROUP}(?::{_GROUP}){{0,{max_groups - 1}}}{mapped})?"


def _digit(packed: bytes, prefix: int, index: int) -> str:
    """Return the hexadecimal digits that addresses with this prefix may have at digit ``index``."""
    bits = min(4, max(0, prefix - 4 * index))
    value = packed[index // 2] >> (0 if index % 2 else 4) & 0xF
    return _DIGITS[value : value + 2 ** (4 - bits)]


def _group(digits: list[str]) -> str:
    """Return the pattern of a group, where leading digits that may be zero can be left out."""
    if all(digit == _DIGITS for digit in digits):
        return _GROUP
    starts = [start for start in range(4) if all("0" in digit for digit in digits[:start])]
    written = ["".join(d if len(d) == 1 else f"[{d}]" for d in digits[start:]) for start in starts]
    return written[0] if len(written) == 1 else f"(?:{'|'.join(written)})"
