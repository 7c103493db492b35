"""Writes the certificate authorities that this machine trusts into a Java key store.

A downloaded Java has its own list, without the authority of a company's network. Python reads the machine's list (and
the file in the variable SSL_CERT_FILE), so with this key store Java trusts the same authorities as pip and Python.

The file is a Java key store, version 2 of the format (JKS): a header, one entry per certificate, and a keyed SHA-1
over the whole file, which only detects damage. The store holds no private key.
"""

from __future__ import annotations

import ssl
import struct
from collections.abc import Iterable
from hashlib import sha1
from pathlib import Path

_MAGIC, _VERSION, _TRUSTED_CERTIFICATE = 0xFEEDFEED, 2, 2
_PASSWORD = "changeit"  # noqa: S105 - Java's well-known default; the file holds public certificates only


def system_certificates() -> tuple[bytes, ...]:
    """Return the authorities this Python trusts by default, as DER. Empty if it reads them one by one from a
    folder."""
    return tuple(ssl.create_default_context().get_ca_certs(binary_form=True))


def trust_store(certificates: Iterable[bytes]) -> bytes:
    """Encode a key store with these DER certificates."""
    trusted = tuple(certificates)
    body = struct.pack(">III", _MAGIC, _VERSION, len(trusted))
    for number, certificate in enumerate(trusted):
        body += struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(f"ca-{number}") + struct.pack(">Q", 0)
        body += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    checksum = sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False)
    return body + checksum.digest()


def java_options(certificates: Iterable[bytes], folder: Path) -> list[str]:
    """Write the key store into ``folder`` and return the options with which a JVM trusts only these certificates."""
    store = folder / "trusted.jks"
    store.write_bytes(trust_store(certificates))
    name = "-Djavax.net.ssl.trustStore"
    return [f"{name}={store}", f"{name}Type=JKS", f"{name}Password={_PASSWORD}"]


def _text(value: str) -> bytes:
    encoded = value.encode("ascii")
    return struct.pack(">H", len(encoded)) + encoded
