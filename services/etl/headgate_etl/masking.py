"""Masks personal fields, so that the output of the app reveals less than its input.

=============  ==================================================================================================
``redact``     ``***``
``keep_last``  stars, and the last characters as they are; a text that is not longer is stars only
``pseudonym``  HMAC-SHA256 with a key from a file, 32 hexadecimal digits: equal values have equal pseudonyms
``network``    the /24 of an IPv4 address, the /48 of an IPv6 one, or other ``bits``; ``***`` for another value
``year``       the first moment of the year, or the first four digits of a date as text; ``***`` for other text
=============  ==================================================================================================

Null stays null. Each process that masks reads the key from its file. Settings, logs, checkpoints and the data sent to
the workers contain the path of the file, never the key. A masked value depends on nothing but the value and the key.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import polars as pl

from headgate_etl.documents import How, MaskDocument
from rulecore.language.secrets import read_secret
from streamcore.errors import ConfigError

HIDDEN = "***"
_PSEUDONYM_DIGITS = 32
_PREFIX_V4, _PREFIX_V6 = 24, 48


@dataclass(frozen=True, slots=True)
class Mask:
    """How one field is masked. ``characters``: how many at the end ``keep_last`` leaves readable. ``bits``: of IPv4 and
    IPv6 addresses, those that ``network`` keeps."""

    how: How
    characters: int = 0
    key_file: Path | None = None
    bits: tuple[int, int] = (_PREFIX_V4, _PREFIX_V6)


def to_mask(document: MaskDocument) -> Mask:
    """Check the document, and the content of its key file, and return the mask. ``ConfigError`` names what is wrong."""
    required = {How.KEEP_LAST: "characters", How.PSEUDONYM: "key_file"}.get(document.how)
    for name in ("characters", "key_file"):
        given = getattr(document, name) is not None
        if given != (name == required):
            raise ConfigError(f"{document.how}: {'takes no' if given else 'needs'} {name}")
    bits = (document.bits, document.bits_of_ipv6)
    if document.how is not How.NETWORK and bits != (None, None):
        raise ConfigError(f"{document.how}: takes no bits")
    if document.key_file is not None:
        read_key(document.key_file)
    bits_v4 = _PREFIX_V4 if document.bits is None else document.bits
    bits_v6 = _PREFIX_V6 if document.bits_of_ipv6 is None else document.bits_of_ipv6
    return Mask(document.how, document.characters or 0, document.key_file, (bits_v4, bits_v6))


def mask_columns(rows: pl.DataFrame, masks: Mapping[str, Mask]) -> pl.DataFrame:
    """Mask the columns in ``masks``; the others stay as they are."""
    return rows.with_columns(_column(rows[name], mask) for name, mask in masks.items())


def _column(column: pl.Series, mask: Mask) -> pl.Series:
    match mask.how:
        case How.PSEUDONYM:
            assert mask.key_file is not None
            return _by_value(column, lambda value: pseudonym(value, _key(str(mask.key_file))))
        case How.NETWORK:
            return _by_value(column, lambda value: network(value, *mask.bits))
    return column.to_frame().select(_expression(pl.col(column.name), column.dtype, mask).alias(column.name)).to_series()


def _expression(text: pl.Expr, dtype: pl.DataType, mask: Mask) -> pl.Expr:
    if mask.how is How.KEEP_LAST:
        longer = text.str.tail(mask.characters).str.pad_start(text.str.len_chars(), "*")
        return (
            pl.when(text.str.len_chars() > mask.characters).then(longer).otherwise(text.str.replace_all("(?s).", "*"))
        )
    if mask.how is How.YEAR and dtype != pl.String:
        return text.dt.truncate("1y")
    shown = pl.lit(HIDDEN)
    if mask.how is How.YEAR:
        shown = pl.when(text.str.contains(r"\A[0-9]{4}(?:-|\z)")).then(text.str.head(4)).otherwise(shown)
    return pl.when(text.is_not_null()).then(shown)


def _by_value(column: pl.Series, function: Callable[[str], str]) -> pl.Series:
    """Apply a function of text once for each distinct value."""
    values = column.drop_nulls().unique()
    masked = pl.Series([function(value) for value in values.to_list()], dtype=pl.String)
    return column.replace_strict(values, masked, default=None, return_dtype=pl.String)


def pseudonym(text: str, key: bytes) -> str:
    """Return the first 32 hexadecimal digits of HMAC-SHA256 over the text in UTF-8."""
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()[:_PSEUDONYM_DIGITS]


def network(text: str, bits: int = _PREFIX_V4, bits_of_ipv6: int = _PREFIX_V6) -> str:
    """Return the network of an address: ``203.0.113.77`` gives ``203.0.113.0/24``; other text gives ``***``."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return HIDDEN
    if address.version == 4:
        return str(ipaddress.IPv4Network((int(address), bits), strict=False))
    return str(ipaddress.IPv6Network((int(address), bits_of_ipv6), strict=False))


def read_key(path: Path) -> bytes:
    """Read the key of pseudonyms; ``ConfigError``, which never contains the key, if there is none."""
    return read_secret(str(path), "key file")


@lru_cache(maxsize=16)
def _key(path: str) -> bytes:
    return read_key(Path(path))
