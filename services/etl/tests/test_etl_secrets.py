"""Secrets of expressions: the key is in its file only."""

from __future__ import annotations

import hashlib
import hmac
import pickle
from pathlib import Path

import pytest

from headgate_etl.app import build_app
from streamcore.errors import ConfigError
from tests.harness.apps.small_etl import MAP, events, letters, load, rows, run

KEY = "6b61737465-secret-key-6b61737465"


def test_the_digest_of_a_secret_key_is_in_the_row_and_the_key_nowhere(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY + "\n")
    secrets = {"mails": str(tmp_path / "key")}
    mapped = MAP | {"email": "hmac_sha256(email, secret('mails'))"}
    settings = load(tmp_path, mapped, secrets=secrets)
    output = run(settings, events({"email": "a@b.org"}, {"email": None}, {"email": "x", "price": "no number"}))
    expected = hmac.new(KEY.encode(), b"a@b.org", hashlib.sha256).hexdigest()
    assert [row["email"] for row in rows(output)] == [expected, None]
    everything = f"{letters(output)}{settings!r}{settings.model_dump_json()}{build_app(settings)!r}".encode()
    assert KEY.encode() not in everything + pickle.dumps(settings)


def test_a_missing_secret_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, MAP | {"email": "hmac_sha256(email, secret('mail'))"}, secrets={"mails": str(tmp_path / "no")})
    assert "secrets.mails: secret file" in str(caught.value)
    (tmp_path / "no").write_text(KEY)
    with pytest.raises(ConfigError, match="there is no secret 'mail'"):
        load(tmp_path, MAP | {"email": "hmac_sha256(email, secret('mail'))"}, secrets={"mails": str(tmp_path / "no")})


def test_a_network_keeps_so_many_bits(tmp_path: Path) -> None:
    mask = {"ip": {"how": "network", "bits": 16, "bits_of_ipv6": 32}}
    output = run(load(tmp_path, mask=mask), events({"ip": "203.0.113.77"}, {"ip": "2001:db8:1::5"}, {"ip": "x"}))
    assert [row["ip"] for row in rows(output)] == ["203.0.0.0/16", "2001:db8::/32", "***"]
    with pytest.raises(ConfigError, match="redact: takes no bits"):
        load(tmp_path, mask={"ip": {"how": "redact", "bits": 16}})
