"""Signed records: a text, the name of who signs it, and an Ed25519 signature (RFC 8032) of the record's key and text.

The signature covers the bytes that are sent, so no canonical form of JSON is needed, and the record's key, so a record
is of no use under another key. Pure functions.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

import orjson

from rulecore.errors import RuleSetError

_DOMAIN = b"headgate control record 1"
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class SignedText:
    """``signer``: its name in the rule set. ``text``: JSON. ``signature``: 64 bytes, as base64."""

    signer: str
    text: str
    signature: str

    def encode(self) -> bytes:
        """Return the value of the control record."""
        return orjson.dumps({"signer": self.signer, "text": self.text, "signature": self.signature})


def decode_signed(value: bytes) -> SignedText:
    """Return a signed text, whose signature nobody has checked. ``RuleSetError`` if the value is none."""
    try:
        found = orjson.loads(value)
        signer, text, signature = found["signer"], found["text"], found["signature"]
    except (ValueError, KeyError, TypeError):
        raise RuleSetError("this record must be signed: an object with signer, text and signature") from None
    if not (isinstance(signer, str) and isinstance(text, str) and isinstance(signature, str)):
        raise RuleSetError("signer, text and signature of a signed record are strings")
    return SignedText(signer, text, signature)


class SigningKey:
    """A private key. ``seed``: its 32 bytes."""

    def __init__(self, seed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self.seed = seed
        self._key = Ed25519PrivateKey.from_private_bytes(seed)

    @property
    def public(self) -> str:
        """The public key, as base64."""
        return base64.b64encode(self._key.public_key().public_bytes_raw()).decode()

    def sign(self, signer: str, record_key: str, text: str) -> SignedText:
        """Return the text with its signature under this key of a control record."""
        signature = self._key.sign(_signed_bytes(record_key, text))
        return SignedText(signer, text, base64.b64encode(signature).decode())


def is_public_key(text: str) -> bool:
    """Return whether a text is a public key, as base64."""
    try:
        return len(base64.b64decode(text, validate=True)) == _KEY_BYTES
    except (binascii.Error, ValueError):
        return False


def verify(signed: SignedText, record_key: str, public: str) -> bool:
    """Return whether the signature is that of the public key."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        signature = base64.b64decode(signed.signature, validate=True)
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public))
        key.verify(signature, _signed_bytes(record_key, signed.text))
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True


def _signed_bytes(record_key: str, text: str) -> bytes:
    return b"\n".join((_DOMAIN, record_key.encode(), text.encode()))
