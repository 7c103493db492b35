"""A small OpenID provider on real HTTP with real signatures: code flow with PKCE, and tokens of any wrong kind."""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any  # claims are JSON of any content
from urllib.parse import parse_qs, urlencode, urlsplit

from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET, AUDIENCE = "headgate-console", "s3cret", "headgate"


def _make_key(name: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig", "alg": "RS256"})


@dataclass
class OidcProvider:
    """``address``: the issuer. ``person``: the claims of who logs in next. ``changes``: of the next id_token, to make
    it wrong; ``signer``: the key that signs, by default the published one."""

    address: str = ""
    person: dict[str, Any] = field(default_factory=lambda: {"sub": "alice", "groups": ["fraud"]})
    changes: dict[str, Any] = field(default_factory=dict)
    key: RSAKey = field(default_factory=lambda: _make_key("first"))
    signer: RSAKey | None = None
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    key_requests: int = 0

    def token(self, claims: Mapping[str, Any] | None = None, key: RSAKey | None = None, **header: Any) -> str:
        """Return a signed token: good unless ``claims`` or ``key`` are wrong. A claim None is left out."""
        now = int(time.time())
        good = {"iss": self.address, "aud": AUDIENCE, "iat": now, "exp": now + 300, **self.person}
        found = {name: value for name, value in {**good, **(claims or {})}.items() if value is not None}
        signing = key or self.signer or self.key
        return jwt.encode({"alg": "RS256", "kid": self.key.kid, **header}, found, signing)

    def unsigned(self, claims: Mapping[str, Any] | None = None, algorithm: str = "none", secret: bytes = b"") -> str:
        """Return a token with `none`, or with HMAC by a secret such as the public key."""
        now = int(time.time())
        good = {"iss": self.address, "aud": AUDIENCE, "iat": now, "exp": now + 300, **self.person, **(claims or {})}
        parts = [_base64(json.dumps(one).encode()) for one in ({"alg": algorithm, "kid": self.key.kid}, good)]
        signed = ".".join(parts)
        signature = _base64(hmac.digest(secret, signed.encode(), "sha256")) if secret else ""
        return f"{signed}.{signature}"

    def rotate(self) -> None:
        """Sign and publish with another key."""
        self.key = _make_key(secrets.token_hex(4))

    def answer(self, method: str, path: str, query: Mapping[str, str], basic: str) -> tuple[int, object, str]:
        """Return status, JSON body and Location of an answer."""
        match method, path:
            case "GET", "/.well-known/openid-configuration":
                ends = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
                return 200, {"issuer": self.address, **{k: f"{self.address}/{v}" for k, v in ends.items()}}, ""
            case "GET", "/keys":
                self.key_requests += 1
                return 200, {"keys": [self.key.as_dict(private=False)]}, ""
            case "GET", "/authorize":
                if query["code_challenge_method"] != "S256" or query["client_id"] != CLIENT:
                    return 400, {}, ""
                code = secrets.token_urlsafe(8)
                self.codes[code] = dict(query)
                back = urlencode({"code": code, "state": query["state"]})
                return 303, {}, f"{query['redirect_uri']}?{back}"
            case "POST", "/token":
                return self._exchange(query, basic)
        return 404, {}, ""

    def _exchange(self, query: Mapping[str, str], basic: str) -> tuple[int, object, str]:
        asked = self.codes.pop(query.get("code", ""), None)
        login = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if asked is None or basic != f"Basic {login}" or asked["redirect_uri"] != query["redirect_uri"]:
            return 400, {"error": "invalid_grant"}, ""
        if create_s256_code_challenge(query["code_verifier"]) != asked["code_challenge"]:
            return 400, {"error": "invalid_grant"}, ""
        claims = {"aud": CLIENT, "nonce": asked["nonce"], **self.changes}
        body = {"access_token": "a", "token_type": "Bearer", "id_token": self.token(claims)}
        return 200, body, ""


def _base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


@contextmanager
def serve_provider() -> Iterator[OidcProvider]:
    """Serve a provider on a free port."""
    provider = OidcProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(parse_qs(urlsplit(self.path).query))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
            self._send(parse_qs(body))

        def _send(self, found: Mapping[str, list[str]]) -> None:
            query = {name: values[0] for name, values in found.items()}
            path, basic = urlsplit(self.path).path, self.headers.get("Authorization", "")
            status, body, location = provider.answer(self.command, path, query, basic)
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
