"""How to reach a schema registry. Secrets are named (a file, an environment variable), never written in settings."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass as settings_dataclass

from streamcore.errors import ConfigError
from streamcore.settings import STRICT

_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@settings_dataclass(frozen=True, slots=True, config=STRICT)
class RegistrySettings:
    """How to reach a schema registry: with a user and a password (basic), with a token (bearer), or without both.

    Raises ``ConfigError`` for invalid or contradictory settings.
    """

    url: Annotated[
        str,
        Field(description="Address that Confluent's clients call schema.registry.url, with http or https."),
    ]
    user: Annotated[str | None, Field(description="User name of basic authentication.")] = None
    password_file: Annotated[Path | None, Field(description="File with the password.")] = None
    password_env: Annotated[str | None, Field(description="Environment variable with the password.")] = None
    token_file: Annotated[Path | None, Field(description="File with the token of bearer authentication.")] = None
    token_env: Annotated[str | None, Field(description="Environment variable with the token.")] = None
    ca_file: Annotated[
        Path | None,
        Field(description="PEM file of the certificate authority; without it the system's are trusted."),
    ] = None
    cert_file: Annotated[Path | None, Field(description="PEM file of the client's certificate.")] = None
    key_file: Annotated[Path | None, Field(description="PEM file of the key of the client's certificate.")] = None
    request_timeout_ms: Annotated[
        PositiveInt, Field(description="Time in milliseconds after which a request has failed.")
    ] = 10_000

    def __post_init__(self) -> None:
        parts = _parse_url(self.url)
        if parts is None or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
            raise ConfigError(
                "schema_registry url: write http://host:port or https://host:port, and a path if it has one, in ASCII"
            )
        if parts.username is not None or parts.password is not None:
            raise ConfigError("schema_registry url: write no login into it; set user and password_file, or token_file")
        passwords = [s for s in (self.password_file, self.password_env) if s is not None]
        tokens = [s for s in (self.token_file, self.token_env) if s is not None]
        if len(passwords) != (self.user is not None) or len(tokens) > 1 or (passwords and tokens):
            raise ConfigError(
                "schema_registry: a user needs one of password_file and password_env; instead of a user, one of "
                "token_file and token_env may be set"
            )
        for name, value in (("password_env", self.password_env), ("token_env", self.token_env)):
            if value is not None and not _ENVIRONMENT_NAME.match(value):
                # The message omits the value: it may be a secret, written here by mistake.
                raise ConfigError(f"schema_registry {name}: must be the name of an environment variable")
        if parts.scheme == "http" and any(f is not None for f in (self.ca_file, self.cert_file, self.key_file)):
            raise ConfigError("schema_registry: TLS files need an https url")
        if (self.cert_file is None) != (self.key_file is None):
            raise ConfigError("schema_registry: cert_file and key_file come together")

    def secret(self) -> str | None:
        """Read the password or the token; None without a login. ``ConfigError`` if it is missing or empty."""
        path, variable = self.password_file or self.token_file, self.password_env or self.token_env
        if path is not None:
            try:
                text = path.read_text(encoding="utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "not UTF-8 text"
                raise ConfigError(f"schema_registry: cannot read {path}: {reason}") from None
        elif variable is not None:
            text = os.environ.get(variable, "")
        else:
            return None
        if not text:
            raise ConfigError(f"schema_registry: {path or f'environment variable {variable}'} is empty")
        return text


def _parse_url(url: str) -> SplitResult | None:
    """Return the parts of an address; None if no client can use it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
        host.encode("idna")
    except ValueError:  # a port that is no number, or a label of the host that is too long
        return None
    return parts if host and url.isascii() and url.isprintable() and " " not in url else None
