"""The settings of the OpenSearch sink: where the server is, how to log in, which lane goes to which index.

Promises that a password is read when a client is built and at no other time: the settings hold the *name* of a file
or of an environment variable, so that no ``repr``, log line or error can carry the secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from streamcore.errors import ConfigError
from streamcore.sinks.sink import RetryPolicy

#: A value in a document for the server.
Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]

_ALIAS = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}\Z")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}\Z")


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """Where a lane's rows go. ``alias``: the name that readers search; the indexes behind it are ``<alias>-000001`` and
    so on.

    ``id``: the columns that make a document's id; several are written as a JSON array of texts. ``deleted``: a boolean
    column; a row with true deletes the document, and the column is not part of a document. ``properties``: mappings of
    columns that shall not have the one derived from their type. ``template_version``: raise it when ``properties`` or
    ``settings`` change. ``gc_deletes_ms``: how long the server remembers the version of a deleted document.
    """

    alias: str
    id: tuple[str, ...]
    deleted: str | None = None
    properties: Mapping[str, Json] = field(default_factory=dict)
    settings: Mapping[str, Json] = field(default_factory=dict)
    template_version: int = 1
    gc_deletes_ms: int = 3_600_000
    refresh_ms: int = 1_000

    def __post_init__(self) -> None:
        if not _ALIAS.match(self.alias):
            raise ConfigError(f"alias {self.alias!r}: small letters, digits, '.', '_' and '-', at most 100")
        if not self.id:
            raise ConfigError(f"index {self.alias}: at least one id column")
        if min(self.template_version, self.gc_deletes_ms, self.refresh_ms) <= 0:
            raise ConfigError(f"index {self.alias}: template_version, gc_deletes_ms and refresh_ms must be above zero")


@dataclass(frozen=True, slots=True)
class BulkLimits:
    """Of one request, and how many are on their way at a time."""

    documents: int = 5_000
    size_bytes: int = 8 * 1024 * 1024
    in_flight: int = 2

    def __post_init__(self) -> None:
        if min(self.documents, self.size_bytes, self.in_flight) <= 0:
            raise ConfigError(f"{self}: all limits must be above zero")


@dataclass(frozen=True, slots=True)
class OpenSearchSettings:
    """One cluster, one login, one sink of an app. ``hosts``: URLs, all with https or all with http.

    The TLS files are PEM. ``request_timeout_ms`` bounds every single request, here and on the server. Raises
    ``ConfigError`` for anything that cannot work together.
    """

    hosts: tuple[str, ...]
    indexes: Mapping[str, IndexSpec]
    name: str = "opensearch"
    user: str | None = None
    password_file: Path | None = None
    password_env: str | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    request_timeout_ms: int = 30_000
    limits: BulkLimits = field(default_factory=BulkLimits)
    patience: RetryPolicy = field(default_factory=RetryPolicy)

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise ConfigError(f"sink name {self.name!r}: letters, digits, _ and -, at most 100")
        if not self.indexes:
            raise ConfigError(f"sink {self.name}: no lane has an index")
        aliases = [spec.alias for spec in self.indexes.values()]
        if twice := [alias for alias in aliases if aliases.count(alias) > 1]:
            raise ConfigError(f"sink {self.name}: two lanes go to alias {twice[0]!r}; give each an index of its own")
        if self.request_timeout_ms <= 0:
            raise ConfigError(f"sink {self.name}: request_timeout_ms must be above zero")
        ClientSettings.of(self)

    @property
    def login(self) -> ClientSettings:
        """How to connect."""
        return ClientSettings.of(self)

    @property
    def late_ms(self) -> int:
        """The longest time that a request of ours can be on its way: all attempts, and the last one here and there."""
        return self.patience.recovery_ms + 2 * self.request_timeout_ms


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Where a cluster is and how to log in: the input of a client."""

    hosts: tuple[str, ...]
    user: str | None = None
    password_file: Path | None = None
    password_env: str | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    request_timeout_ms: int = 30_000
    connections: int = 2

    @classmethod
    def of(cls, s: OpenSearchSettings) -> ClientSettings:
        """Of a sink's settings."""
        files = (s.ca_file, s.cert_file, s.key_file)
        return cls(
            s.hosts, s.user, s.password_file, s.password_env, *files, s.request_timeout_ms, s.limits.in_flight + 1
        )

    def __post_init__(self) -> None:
        schemes = {urlsplit(host).scheme for host in self.hosts}
        if schemes not in ({"http"}, {"https"}) or not all(urlsplit(host).hostname for host in self.hosts):
            raise ConfigError(f"opensearch hosts {list(self.hosts)}: write http://host:port, or https:// for all")
        if any("@" in urlsplit(host).netloc for host in self.hosts):
            raise ConfigError("opensearch hosts: no user or password in a URL; name user and password_file")
        secrets = [source for source in (self.password_file, self.password_env) if source is not None]
        if len(secrets) != (self.user is not None):
            raise ConfigError("opensearch: user and one of password_file, password_env come together")
        if not self.tls and any((self.ca_file, self.cert_file, self.key_file)):
            raise ConfigError("opensearch: TLS files need https hosts")
        if (self.cert_file is None) != (self.key_file is None):
            raise ConfigError("opensearch: cert_file and key_file come together")

    @property
    def tls(self) -> bool:
        """True when the connection is encrypted."""
        return self.hosts[0].startswith("https://")

    def password(self) -> str | None:
        """Read the password now; None without a user. ``ConfigError`` names the missing setting, never a value that was
        read."""
        if self.user is None:
            return None
        if self.password_file is None:
            source, secret = "the named environment variable", os.environ.get(self.password_env or "", "")
        else:
            source = f"file {self.password_file}"
            try:
                secret = self.password_file.read_text(encoding="utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "not UTF-8 text"
                raise ConfigError(f"opensearch password: cannot read {self.password_file}: {reason}") from None
        if not secret:
            raise ConfigError(f"opensearch password: {source} is empty")
        return secret
