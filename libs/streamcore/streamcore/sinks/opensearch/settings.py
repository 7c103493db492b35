"""The settings of an OpenSearch sink: the cluster, the login and the indexes.

The settings have the *name* of a file or environment variable with the password, never the password, so it is in no
``repr``, log line or error. ``ClientSettings.password`` reads it when a client is made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, PositiveInt
from pydantic.dataclasses import dataclass as settings_dataclass

from streamcore.errors import ConfigError
from streamcore.settings import STRICT
from streamcore.sinks.sink import RetryPolicy

#: A value in a JSON document.
Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]

_ALIAS = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}\Z")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}\Z")


@settings_dataclass(frozen=True, slots=True, config=STRICT)
class IndexSpec:
    """The index of a lane. The alias points to an index ``<alias>-000001``, ``<alias>-000002`` and so on.

    An id of several columns is written as a JSON array of texts. The column ``deleted`` is not part of a document.
    """

    alias: Annotated[str, Field(description="Alias of the index, by which readers name it.")]
    id: Annotated[tuple[str, ...], Field(description="Columns that make a document's id.")]
    deleted: Annotated[
        str | None, Field(description="Boolean column that marks a deletion; without it nothing is deleted.")
    ] = None
    properties: Annotated[
        Mapping[str, JsonValue],
        Field(description="Mapping of the fields, as OpenSearch takes it; others have the one of their type."),
    ] = Field(default_factory=dict)
    settings: Annotated[
        Mapping[str, JsonValue], Field(description="Settings of the index, as OpenSearch takes them.")
    ] = Field(default_factory=dict)
    template_version: Annotated[
        PositiveInt, Field(description="Version of mapping and settings; a higher one replaces the template.")
    ] = 1
    gc_deletes_ms: Annotated[
        PositiveInt,
        Field(description="Time in milliseconds for which OpenSearch remembers the version of a deleted document."),
    ] = 3_600_000
    refresh_ms: Annotated[
        PositiveInt,
        Field(description="Time in milliseconds after which written documents are visible to searches."),
    ] = 1_000

    def __post_init__(self) -> None:
        if not _ALIAS.match(self.alias):
            raise ConfigError(f"alias {self.alias!r}: use a-z, 0-9, '.', '_' and '-', at most 100")
        if not self.id:
            raise ConfigError(f"index {self.alias}: at least one id column is needed")


@settings_dataclass(frozen=True, slots=True, config=STRICT)
class BulkLimits:
    """Limits of the bulk requests that write documents."""

    documents: Annotated[PositiveInt, Field(description="Largest number of documents in a request.")] = 5_000
    size_bytes: Annotated[PositiveInt, Field(description="Largest size of a request in bytes.")] = 8 * 1024 * 1024
    in_flight: Annotated[PositiveInt, Field(description="Requests that are sent side by side.")] = 2


@settings_dataclass(frozen=True, slots=True, config=STRICT)
class OpenSearchSettings:
    """One OpenSearch sink: a cluster and the indexes of an app."""

    hosts: Annotated[
        tuple[str, ...], Field(description="Addresses of the cluster, as URLs, all with https or all with http.")
    ]
    indexes: Annotated[Mapping[str, IndexSpec], Field(description="Index of each lane, by the lane's name.")]
    name: Annotated[str, Field(description="Name of the sink, unique in the app.")] = "opensearch"
    user: Annotated[str | None, Field(description="User name.")] = None
    password_file: Annotated[
        Path | None,
        Field(description="File with the password; without it and password_env no password is sent."),
    ] = None
    password_env: Annotated[str | None, Field(description="Environment variable with the password.")] = None
    ca_file: Annotated[
        Path | None,
        Field(description="PEM file of the certificate authority; without it the system's are trusted."),
    ] = None
    cert_file: Annotated[Path | None, Field(description="PEM file of the client's certificate.")] = None
    key_file: Annotated[Path | None, Field(description="PEM file of the key of the client's certificate.")] = None
    request_timeout_ms: Annotated[
        PositiveInt,
        Field(description="Time in milliseconds after which a request has failed, for the sink and for the server."),
    ] = 30_000
    limits: Annotated[BulkLimits, Field(description="Limits of the requests that write documents.")] = BulkLimits()
    patience: Annotated[RetryPolicy, Field(description="How long and how often writing is retried.")] = RetryPolicy()

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            raise ConfigError(f"sink name {self.name!r}: use A-Z, a-z, 0-9, _ and -, at most 100")
        if not self.indexes:
            raise ConfigError(f"sink {self.name}: no lane has an index")
        aliases = [spec.alias for spec in self.indexes.values()]
        if twice := [alias for alias in aliases if aliases.count(alias) > 1]:
            raise ConfigError(f"sink {self.name}: two lanes have the alias {twice[0]!r}; give each its own")
        ClientSettings.of(self)

    @property
    def login(self) -> ClientSettings:
        """The settings of a client."""
        return ClientSettings.of(self)

    @property
    def late_ms(self) -> int:
        """The longest time in milliseconds after which a request of this sink can still take effect.

        That is the time of all attempts, and twice the timeout: of the last attempt in the client and in the server.
        """
        return self.patience.recovery_ms + 2 * self.request_timeout_ms


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of a client: the addresses of a cluster, the login and TLS."""

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
    def of(cls, sink: OpenSearchSettings) -> ClientSettings:
        """Return the client settings of a sink."""
        return cls(
            sink.hosts,
            sink.user,
            sink.password_file,
            sink.password_env,
            sink.ca_file,
            sink.cert_file,
            sink.key_file,
            sink.request_timeout_ms,
            connections=sink.limits.in_flight + 1,
        )

    def __post_init__(self) -> None:
        schemes = {urlsplit(host).scheme for host in self.hosts}
        if schemes not in ({"http"}, {"https"}) or not all(urlsplit(host).hostname for host in self.hosts):
            raise ConfigError(
                f"opensearch hosts {list(self.hosts)}: write each as http://host:port, or each as https://host:port"
            )
        if any("@" in urlsplit(host).netloc for host in self.hosts):
            raise ConfigError("opensearch hosts: no user or password in a URL; name user and password_file")
        secrets = [source for source in (self.password_file, self.password_env) if source is not None]
        if len(secrets) != (self.user is not None):
            raise ConfigError("opensearch: user needs one of password_file and password_env, and they need user")
        if not self.tls and any((self.ca_file, self.cert_file, self.key_file)):
            raise ConfigError("opensearch: TLS files need https hosts")
        if (self.cert_file is None) != (self.key_file is None):
            raise ConfigError("opensearch: cert_file and key_file come together")

    @property
    def tls(self) -> bool:
        """Whether the connection uses TLS."""
        return self.hosts[0].startswith("https://")

    def password(self) -> str | None:
        """Read the password; None without a user. ``ConfigError`` names a missing setting, never the password."""
        if self.user is None:
            return None
        if self.password_file is None:
            source, secret = "the environment variable of password_env", os.environ.get(self.password_env or "", "")
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
