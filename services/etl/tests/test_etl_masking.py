"""Masks hide values, and keep only what they should."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_etl.documents import How, MaskDocument
from headgate_etl.masking import HIDDEN, Mask, mask_columns, network, to_mask
from streamcore.errors import ConfigError


def mask_value(value: object, mask: Mask, dtype: pl.DataType | None = None) -> object:
    frame = pl.DataFrame({"v": pl.Series([value, None], dtype=dtype or pl.String())})
    found = mask_columns(frame, {"v": mask})["v"].to_list()
    assert found[1] is None
    return found[0]


@given(st.text(max_size=20), st.integers(1, 6))
def test_keep_last_shows_the_last_characters_and_no_others(text: str, characters: int) -> None:
    found = str(mask_value(text, Mask(How.KEEP_LAST, characters)))
    assert len(found) == len(text)
    kept = text[-characters:] if len(text) > characters else ""
    assert found == "*" * (len(text) - len(kept)) + kept


@given(st.text(max_size=20))
def test_a_pseudonym_is_the_hmac_of_the_text(text: str) -> None:
    key = Path(__file__).resolve()  # any file with enough bytes
    expected = hmac.new(key.read_bytes().strip(), text.encode(), hashlib.sha256).hexdigest()[:32]
    assert mask_value(text, Mask(How.PSEUDONYM, key_file=key)) == expected


@given(st.ip_addresses())
def test_a_network_is_the_address_without_its_last_part(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    found = ipaddress.ip_network(network(str(address)))
    assert address in found
    assert found.prefixlen == (24 if address.version == 4 else 48)


def test_a_mask_hides_a_value_that_is_no_address_or_date() -> None:
    assert network("somewhere") == HIDDEN
    assert mask_value("soon", Mask(How.YEAR)) == HIDDEN
    assert mask_value("anything", Mask(How.REDACT)) == HIDDEN


def test_a_mask_keeps_only_the_year_of_a_date() -> None:
    assert mask_value("1987-06-05", Mask(How.YEAR)) == "1987"
    moment = datetime(1987, 6, 5, 4, 3, tzinfo=UTC)
    assert mask_value(moment, Mask(How.YEAR), pl.Datetime("ms", "UTC")) == datetime(1987, 1, 1, tzinfo=UTC)


def test_a_short_key_is_rejected_and_not_printed(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("short-secret")
    with pytest.raises(ConfigError, match="at least 16 bytes") as error:
        to_mask(MaskDocument(how=How.PSEUDONYM, key_file=key))
    assert "short-secret" not in str(error.value)
