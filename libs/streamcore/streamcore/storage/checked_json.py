"""JSON documents that carry a digest of themselves.

A changed bit in a number leaves valid JSON. The digest finds it: a document that decides what an app reads or writes
is stored with the entry ``blake2b``, and ``parse`` rejects a document whose digest is missing or differs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from streamcore.errors import CorruptState

_DIGEST = "blake2b"
#: 60 bits: a ledger may store them as a signed number of 64 bits (``sinks.delta``).
DIGEST_DIGITS = 15
#: The remedy for a damaged file of a checkpoint.
RESTORE = "restore the app from a savepoint, or this file from a copy"


def compute_digest(document: Mapping[str, object]) -> str:
    """Return the first ``DIGEST_DIGITS`` hexadecimal digits of the BLAKE2b digest of a document's canonical JSON.

    In canonical JSON, keys are sorted and no spaces stand between tokens. Equal documents have equal digests.
    """
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.blake2b(canonical).hexdigest()[:DIGEST_DIGITS]


def encode(document: Mapping[str, object]) -> bytes:
    """Return the document, with its digest as its last entry, as indented JSON."""
    return json.dumps({**document, _DIGEST: compute_digest(document)}, indent=1).encode()


def parse(content: bytes, where: object, remedy: str = RESTORE) -> dict[str, Any]:
    """Return the document that ``encode`` stored, without its digest.

    Raises ``CorruptState``, with ``where`` and ``remedy``, if the content is no JSON object or its digest differs.
    """
    try:
        document = json.loads(content)
    except ValueError as error:
        raise CorruptState(f"{where}: damaged: not JSON ({len(content)} bytes); {remedy}") from error
    if not isinstance(document, dict):
        raise CorruptState(f"{where}: damaged: not a JSON object ({len(content)} bytes); {remedy}")
    stored = document.pop(_DIGEST, None)
    if stored != compute_digest(document):
        raise CorruptState(f"{where}: damaged: its content does not have the digest {stored!r} in it; {remedy}")
    return document
