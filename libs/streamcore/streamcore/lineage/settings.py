"""Where the lineage of an app is sent. The API key is named (a file, an environment variable), never written here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass as settings_dataclass

from streamcore.errors import ConfigError
from streamcore.passwords import read_password
from streamcore.settings import STRICT


@settings_dataclass(frozen=True, slots=True, config=STRICT)
class LineageSettings:
    """How to reach a server that takes OpenLineage events, such as Marquez. ``ConfigError`` if the settings are
    invalid or contradictory."""

    url: Annotated[
        str,
        Field(description="Address of the server, http://host:port or https://host:port, and a path if it has one."),
    ]
    endpoint: Annotated[str, Field(description="Path that events are posted to, below the address.")] = "api/v1/lineage"
    namespace: Annotated[str, Field(min_length=1, description="Namespace of the job; its name is that of the app.")] = (
        "headgate"
    )
    interval_ms: Annotated[
        PositiveInt, Field(description="Time in milliseconds between two events; the cuts in it become one range.")
    ] = 30_000
    timeout_ms: Annotated[PositiveInt, Field(description="Time in milliseconds after which a request has failed.")] = (
        5_000
    )
    api_key_file: Annotated[Path | None, Field(description="File with the API key, which is sent as bearer token.")] = (
        None
    )
    api_key_env: Annotated[str | None, Field(description="Environment variable with the API key.")] = None

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            has_host = bool(parts.hostname) and parts.port != 0
        except ValueError:
            parts, has_host = urlsplit(""), False
        if not has_host or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
            raise ConfigError("lineage url: write http://host:port or https://host:port, and a path if it has one")
        if parts.username is not None or parts.password is not None:
            raise ConfigError("lineage url: write no login into it; set api_key_file or api_key_env")
        if self.api_key_file is not None and self.api_key_env is not None:
            raise ConfigError("lineage: api_key_file and api_key_env: take one of them")

    @property
    def address(self) -> str:
        """The URL that events are posted to."""
        return f"{self.url.rstrip('/')}/{self.endpoint.lstrip('/')}"

    def api_key(self) -> str | None:
        """Read the API key; None without one. ``ConfigError`` if it is missing or empty."""
        key = read_password("lineage", self.api_key_file, self.api_key_env)
        source = self.api_key_file or self.api_key_env
        if source is not None and not key:
            raise ConfigError(f"lineage: the API key in {source} is empty or missing")
        return key
