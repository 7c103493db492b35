"""Lists of networks: an address is the entry of the longest prefix that contains it, as routers choose a route.

An entry is ``10.0.0.0/8``, ``2001:db8::/32`` or one address. A text that is no address is in no network, and an address
of one family is in no network of the other one.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rulecore.errors import ListError

_BITS = {4: 32, 6: 128}


@dataclass(frozen=True, slots=True, eq=False)
class NetworkIndex:
    """The numbers of entries by network.

    ``tables``: for 4 and 6, pairs of the length of a prefix, longest first, and the entries by their first bits.
    """

    tables: Mapping[int, Sequence[tuple[int, Mapping[int, int]]]]

    @classmethod
    def of(cls, keys: Sequence[object]) -> NetworkIndex:
        """Build the index of entries, numbered from 0; raise ``ListError`` for one that is no network, or twice."""
        found: dict[int, dict[int, dict[int, int]]] = {4: {}, 6: {}}
        for number, key in enumerate(keys):
            network = _read(number, str(key))
            prefix = network.prefixlen
            bits = int(network.network_address) >> (network.max_prefixlen - prefix)
            same = found[network.version].setdefault(prefix, {})
            if bits in same:
                raise ListError(f"entry {number + 1}: the network {network} is in the list twice")
            same[bits] = number
        return cls({version: sorted(by_length.items(), reverse=True) for version, by_length in found.items()})

    def find(self, text: str, is_valid: Callable[[int], bool]) -> int | None:
        """Return the number of the entry with the longest prefix of an address that is valid; None if there is none."""
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return None
        if "%" in text:  # of a zone of this machine
            return None
        bits, whole = int(address), _BITS[address.version]
        for prefix, numbers in self.tables[address.version]:
            number = numbers.get(bits >> (whole - prefix))
            if number is not None and is_valid(number):
                return number
        return None


def _read(number: int, text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    if re.fullmatch(r"[^/%]*(/[0-9]{1,3})?", text) is None:
        hint = "such as 10.0.0.0/8; leave out zones and masks"
        raise ListError(f"entry {number + 1}: {text[:60]!r} is no network, {hint}")
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        pass
    try:
        wider = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ListError(f"entry {number + 1}: {text[:60]!r} is no network, such as 10.0.0.0/8") from None
    raise ListError(f"entry {number + 1}: {text} has bits behind its prefix; did you mean {wider}?")
