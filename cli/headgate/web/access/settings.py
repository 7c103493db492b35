"""Settings of access where the console is not on a person's own machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from headgate.web.access.roles import Role
from streamcore.service.config.base import Document, Positive

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def _check_address(address: str) -> str:
    where = urlsplit(address)
    if where.scheme not in ("http", "https") or not where.hostname or where.query or where.fragment:
        raise ValueError(f"{address}: an address such as https://id.example.org is needed")
    if where.scheme == "http" and where.hostname not in _LOOPBACK:
        raise ValueError(f"{address}: only https keeps tokens secret")
    return address.rstrip("/")


class IssuerSettings(Document):
    """Whose tokens are accepted."""

    issuer: Annotated[str, Field(description="Address of the OpenID provider; entry `iss` of its tokens.")]
    subject_claim: Annotated[
        str, Field(min_length=1, description="Claim that names the person: one that never changes and nobody chooses.")
    ] = "sub"
    groups_claim: Annotated[str, Field(min_length=1, description="Claim with the person's groups, for `grants`.")] = (
        "groups"
    )

    @field_validator("issuer")
    @classmethod
    def _check_issuer(cls, issuer: str) -> str:
        _check_address(issuer)
        return issuer


class LoginSettings(IssuerSettings):
    """The login of people: OpenID Connect, code flow with PKCE."""

    client_id: Annotated[str, Field(min_length=1, description="The console's name at the provider.")]
    client_secret_file: Annotated[Path | None, Field(description="File with its secret; none for a public client.")] = (
        None
    )
    scopes: Annotated[tuple[str, ...], Field(description="Scopes to ask for.")] = ("openid", "profile", "email")
    session_hours: Annotated[Positive, Field(le=168, description="Hours after which a person logs in again.")] = 8


class TokenSettings(IssuerSettings):
    """Tokens (JWT) that a proxy adds to each request, or that programs send."""

    audience: Annotated[str, Field(min_length=1, description="What `aud` of a token has to name.")]
    header: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9-]+$", description="Header with the token; a `Bearer` before it is left out.")
    ] = "Authorization"


class GrantSettings(Document):
    """A role, who has it, and for which apps, tags and owners. Empty: no limit."""

    role: Annotated[Role, Field(description="The role.")]
    groups: Annotated[tuple[str, ...], Field(description="For people of one of these groups.")] = ()
    subjects: Annotated[tuple[str, ...], Field(description="For these people.")] = ()
    apps: Annotated[tuple[str, ...], Field(description="In these apps.")] = ()
    tags: Annotated[tuple[str, ...], Field(description="Changes of rules with one of these tags only.")] = ()
    owners: Annotated[tuple[str, ...], Field(description="Changes of rules of these owners only.")] = ()

    @model_validator(mode="after")
    def _check_people(self) -> GrantSettings:
        if not self.groups and not self.subjects:
            raise ValueError('name groups or subjects; "*" among the groups is everybody who is logged in')
        return self


class AccessSettings(Document):
    """Access where others can reach the console."""

    public_address: Annotated[
        str, Field(description="Where people open it, such as https://rules.example.org; its path is empty.")
    ]
    login: Annotated[LoginSettings | None, Field(description="The login of people.")] = None
    tokens: Annotated[TokenSettings | None, Field(description="Tokens of a proxy or of programs.")] = None
    grants: Annotated[tuple[GrantSettings, ...], Field(min_length=1, description="Who has which role.")]

    @field_validator("public_address")
    @classmethod
    def _check_public(cls, address: str) -> str:
        found = _check_address(address)
        if urlsplit(found).path:
            raise ValueError(f"{address}: the console has an address of its own, without a path")
        return found

    @model_validator(mode="after")
    def _check_ways(self) -> AccessSettings:
        if self.login is None and self.tokens is None:
            raise ValueError("name login, tokens or both: a header that a proxy sets is no login")
        return self
