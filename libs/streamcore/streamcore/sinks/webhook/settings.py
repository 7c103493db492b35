"""The settings of a webhook sink: the endpoint of each lane, its headers and the files with secrets.

The settings have the *name* of a file with a secret, never the secret. The sink reads the files when it is opened.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from streamcore.errors import ConfigError
from streamcore.settings import STRICT
from streamcore.sinks.sink import RetryPolicy

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}\Z")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}\Z")
_SECRET_HEADER = re.compile(r"authorization|cookie|token|secret|password|api-?key", re.IGNORECASE)
#: Headers that the sink writes itself.
_OWN = {"content-type", "content-length", "host", "webhook-id", "webhook-timestamp", "webhook-signature"}
_KEY_PREFIX = "whsec_"
_KEY_BYTES = 16


@dataclass(frozen=True, slots=True, config=STRICT)
class WebhookSpec:
    """The endpoint of a lane."""

    url: Annotated[str, Field(description="URL that rows are posted to, http or https.")]
    headers: Annotated[Mapping[str, str], Field(description="Headers of each request that are no secrets.")] = Field(
        default_factory=dict
    )
    secret_headers: Annotated[
        Mapping[str, Path], Field(description="Files with the values of secret headers, such as Authorization.")
    ] = Field(default_factory=dict)
    signing_key_file: Annotated[
        Path | None,
        Field(
            description="File with the key of the signature, at least 16 bytes, or whsec_ and base64; without it "
            "requests are not signed."
        ),
    ] = None
    batch_rows: Annotated[PositiveInt, Field(description="Most rows in one request.")] = 500
    batch_bytes: Annotated[
        PositiveInt, Field(description="Most bytes of rows in one request; a larger row is sent alone.")
    ] = 1024 * 1024
    split_requests: Annotated[
        NonNegativeInt,
        Field(
            description="Most further requests by which the rejected rows of a request are told from the others; what "
            "is rejected after them is dead letters as a whole."
        ),
    ] = 64

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("webhook url: write http://host/path or https://host/path")
        if "@" in parts.netloc:
            raise ConfigError(f"webhook {parts.hostname}: no user or password in a URL; use secret_headers")
        for name in (*self.headers, *self.secret_headers):
            if not _HEADER.match(name) or name.lower() in _OWN:
                raise ConfigError(f"webhook {parts.hostname}: header {name!r} cannot be set; leave it out")
        if secret := next((name for name in self.headers if _SECRET_HEADER.search(name)), None):
            raise ConfigError(f"webhook {parts.hostname}: header {secret} is a secret; name its file in secret_headers")
        if any(not value.isprintable() or not value.isascii() for value in self.headers.values()):
            raise ConfigError(f"webhook {parts.hostname}: the value of a header has other than printable ASCII text")

    def read_headers(self) -> dict[str, str]:
        """Return all headers, with the secrets; ``ConfigError`` names a file, never a secret."""
        return dict(self.headers) | {name: _read(path) for name, path in self.secret_headers.items()}

    def read_signing_key(self) -> bytes | None:
        """Return the key of the signature; None without one."""
        if self.signing_key_file is None:
            return None
        text = _read(self.signing_key_file)
        try:
            key = b64decode(text.removeprefix(_KEY_PREFIX), validate=True) if text.startswith(_KEY_PREFIX) else None
        except NotBase64:
            raise ConfigError(
                f"webhook: file {self.signing_key_file}: what follows {_KEY_PREFIX} is no base64"
            ) from None
        key = text.encode() if key is None else key
        if len(key) < _KEY_BYTES:
            raise ConfigError(f"webhook: file {self.signing_key_file}: the key has less than {_KEY_BYTES} bytes")
        return key


def _read(path: Path) -> str:
    try:
        value = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError(f"webhook: cannot read {path}: {reason}") from None
    if not value or not value.isprintable() or not value.isascii():
        raise ConfigError(f"webhook: file {path} must have one line of printable ASCII text")
    return value


@dataclass(frozen=True, slots=True, config=STRICT)
class WebhookSettings:
    """One webhook sink."""

    endpoints: Annotated[Mapping[str, WebhookSpec], Field(description="Endpoint of each lane, by the lane's name.")]
    timeout_ms: Annotated[PositiveInt, Field(description="Milliseconds until a request counts as failed.")] = 10_000
    ca_file: Annotated[
        Path | None,
        Field(description="PEM file of the certificate authority; without it the system's are trusted."),
    ] = None
    patience: Annotated[RetryPolicy, Field(description="How long and how often writing is retried.")] = RetryPolicy()
    name: Annotated[str, Field(description="Name of the sink, unique in the app.")] = "webhook"

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ConfigError(f"webhook sink {self.name}: no endpoints")
        if not _NAME.match(self.name):
            raise ConfigError(f"webhook sink: name {self.name!r}: use A-Z, a-z, 0-9, _ and -, at most 100")
