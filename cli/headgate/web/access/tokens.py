"""Verifies tokens (JWT, RFC 7519) with the keys that their issuer publishes.

A token counts if one of the issuer's public keys has signed it with an asymmetric algorithm, `iss` is the issuer, `aud`
names us and the time is right. So `none`, HMAC with a public key, and a token for another client are refused. Keys are
fetched when an unknown one is named, at most every ``_REFRESH_S`` seconds. Thread-safe.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar  # claims are JSON of any content

import requests
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from pydantic import BaseModel, ConfigDict, ValidationError

from headgate.web.problems import ProblemCode, ProblemError

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_LEEWAY_S: Final = 60
_REFRESH_S: Final = 30.0
_KEPT_S: Final = 3_600.0
_AGAIN_S: Final = 10.0  # after a failure
_TIMEOUT_S: Final = 5.0
_MAX_BYTES: Final = 32_768
_ANSWER_BYTES: Final = 1 << 20
_Found = TypeVar("_Found")


class ProviderDocument(BaseModel):
    """The metadata of a provider (OpenID Connect Discovery)."""

    model_config = ConfigDict(extra="ignore")

    issuer: str
    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""


def refused(detail: str) -> ProblemError:
    """Return the error for a token or a login that does not count."""
    return ProblemError(401, ProblemCode.NO_SESSION, detail)


@dataclass
class Provider:
    """An OpenID provider: its addresses and keys, fetched when they are needed."""

    issuer: str
    now_s: Callable[[], float] = time.time
    _document: ProviderDocument | None = None
    _keys: KeySet | None = None
    _fetched_s: float = field(default=-_KEPT_S)
    _failed_s: float = field(default=-_AGAIN_S)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def document(self) -> ProviderDocument:
        """Return its addresses. ``ProblemError`` if it does not answer."""
        with self._lock:
            return self._document or self._ask(self._read_document)

    def keys(self, *, again: bool = False) -> KeySet:
        """Return its keys. ``again``: fetch them, unless that was done just now."""
        with self._lock:
            age_s = self.now_s() - self._fetched_s
            if self._keys is None or age_s >= _KEPT_S or (again and age_s >= _REFRESH_S):
                self._keys = self._ask(self._read_keys)
                self._fetched_s = self.now_s()
            return self._keys

    def _ask(self, read: Callable[[], _Found]) -> _Found:
        """Return what it answers. After a failure it is not asked again for some seconds: who waits holds the lock."""
        if self.now_s() - self._failed_s < _AGAIN_S:
            raise _away(self.issuer, f"it did not just now, and is asked again after {_AGAIN_S:.0f} s")
        try:
            return read()
        except ProblemError:
            self._failed_s = self.now_s()
            raise

    def _read_document(self) -> ProviderDocument:
        if self._document is None:
            found = _fetch(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
            try:
                document = ProviderDocument.model_validate(found)
            except ValidationError:
                raise _away(self.issuer, "its description is none") from None
            if document.issuer != self.issuer:
                raise _away(self.issuer, f"it says that it is {document.issuer[:200]}")
            self._document = document
        return self._document

    def _read_keys(self) -> KeySet:
        try:
            return KeySet.import_key_set(_fetch(self._read_document().jwks_uri))  # type: ignore[arg-type]  # checked there
        except (JoseError, ValueError, KeyError, TypeError):
            raise _away(self.issuer, "its keys cannot be read") from None


def _fetch(address: str) -> dict[str, Any]:
    try:
        answer = requests.get(address, timeout=_TIMEOUT_S, allow_redirects=False, stream=True)
        with answer:
            answer.raise_for_status()
            body = answer.raw.read(_ANSWER_BYTES, decode_content=True)
        import json

        found = json.loads(body)
    except (requests.RequestException, ValueError) as error:
        raise _away(address, type(error).__name__) from None
    if not isinstance(found, dict):
        raise _away(address, "its answer is no object")
    return found


def _away(address: str, why: str) -> ProblemError:
    detail = f"the OpenID provider at {address} does not answer as it should: {why}"
    return ProblemError(503, ProblemCode.PROVIDER_AWAY, detail, headers={"Retry-After": "5"})


@dataclass(frozen=True)
class TokenVerifier:
    """Verifies the tokens of one issuer for one audience."""

    provider: Provider
    audience: str
    now_s: Callable[[], float] = time.time

    def verify(self, token: str, nonce: str | None = None) -> Mapping[str, Any]:
        """Return the claims of a token. ``nonce``: the value of its claim. ``ProblemError`` for an invalid one."""
        if len(token) > _MAX_BYTES or token.count(".") != 2:  # header, claims, signature
            raise refused("the token is no signed JWT")
        claims = self._claims(token)
        if claims.get("iss") != self.provider.issuer:
            raise refused("the token is of another issuer")
        named = claims.get("aud")
        audiences = named if isinstance(named, list) else [named]
        if self.audience not in audiences:
            raise refused("the token is for another audience")
        if len(audiences) > 1 and claims.get("azp", self.audience) != self.audience:
            raise refused("the token was given to another client")
        now_s = self.now_s()
        if not _is_number(claims.get("exp")) or claims["exp"] + _LEEWAY_S <= now_s:
            raise refused("the token has expired, or names no end")
        for name in ("nbf", "iat"):
            if name in claims and (not _is_number(claims[name]) or claims[name] - _LEEWAY_S > now_s):
                raise refused("the token is not valid yet")
        if nonce is not None and claims.get("nonce") != nonce:
            raise refused("the token belongs to another login")
        return claims

    def _claims(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a token that one of the provider's keys has signed."""
        for again in (False, True):
            try:
                return dict(jwt.decode(token, self.provider.keys(again=again), algorithms=[*ALGORITHMS]).claims)
            except (JoseError, ValueError, KeyError, TypeError):
                continue
        raise refused("no key of the issuer has signed the token")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
