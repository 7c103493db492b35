"""A client of the REST protocol of Confluent's schema registry, with one connection that it keeps.

Whatever is not an answer is ``Retryable``: no connection, no permission, an error of the server, a page of a proxy, an
answer that takes too long. Only the registry's own "schema not found" says that a schema is absent. A redirect is not
followed, for the login is meant for the registry. Messages have neither the registry's address, which their reader has,
nor a login.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from streamcore.errors import ConfigError, Retryable
from streamcore.schema_registry.schemas import RegisteredSchema, SchemaId, SchemaReference, SchemaType
from streamcore.schema_registry.settings import RegistrySettings

_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_SUBJECT_NOT_FOUND, _VERSION_NOT_FOUND, _SCHEMA_NOT_FOUND = 40401, 40402, 40403
#: The most bytes of an answer; the most schemas that one schema uses, how deep they may be inside each other, and the
#: most characters that they may have together.
MAX_ANSWER_BYTES = 16 << 20
MAX_REFERENCES, MAX_REFERENCE_DEPTH, MAX_REFERENCE_CHARACTERS = 1_000, 50, 16 << 20
_MESSAGE_CHARACTERS = 200
_CHUNK_BYTES = 1 << 16


class _TooManyReferences(Exception):
    """A schema uses more than the limits allow."""


class _NoSuchPath(Retryable):
    """The answer says that there is nothing at a path, and not that there is no such schema."""


@dataclass(slots=True)
class _References:
    """The texts of the schemas that a schema uses, by name, each after those that it uses itself."""

    texts: dict[str, str] = field(default_factory=dict)
    read: int = 0
    characters: int = 0


class RegistryClient:
    """Asks a registry. One thread at a time.

    The password is read again for each connection, so a new one in its file needs no restart.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._parts = urlsplit(settings.url)
        self._connection: http.client.HTTPConnection | None = None
        self._headers: Mapping[str, str] = {}

    def schema(self, schema_id: SchemaId) -> RegisteredSchema | None:
        """Return the schema with this id and all that it uses, or None if the registry does not have the id.

        Raises ``Retryable`` if the registry is away, rejects the login, or has lost a schema that this one uses.
        """
        if isinstance(schema_id, str):
            document = self._by_guid(schema_id)
        else:
            document = self._get(f"/schemas/ids/{schema_id}", _SCHEMA_NOT_FOUND)
        if document is None:
            return None
        found, problem = _References(), ""
        try:
            self._add_references(document, found, ())
        except _TooManyReferences as error:
            found, problem = _References(), str(error)
        references = tuple(SchemaReference(name, text) for name, text in found.texts.items())
        kind = _text(document, "schemaType", SchemaType.AVRO)
        return RegisteredSchema(schema_id, kind, _text(document, "schema"), references, problem)

    def versions(self, subject: str) -> list[int]:
        """Return the numbers of the versions of a subject, ascending; none if the registry does not have it."""
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions", _SUBJECT_NOT_FOUND)
        if answer is None:
            return []
        if not isinstance(answer, list) or not all(isinstance(version, int) for version in answer):
            raise Retryable(f"the versions of subject {subject} are no list of numbers")
        return sorted(answer)

    def version_id(self, subject: str, version: int) -> int | None:
        """Return the id of the schema that is a version of a subject, or None if the version was deleted."""
        document = self._version(subject, version)
        if document is None:
            return None
        if not isinstance(document, dict) or not isinstance(found := document.get("id"), int):
            raise Retryable(f"version {version} of subject {subject} has no id")
        return found

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    @property
    def name(self) -> str:
        """Kind and address of the registry, for messages."""
        return f"schema registry {self._settings.url}"

    def _by_guid(self, guid: str) -> Any:
        """Return the schema that the registry has under a GUID. One that knows no GUIDs has none."""
        try:
            return self._get(f"/schemas/guids/{guid}", _SCHEMA_NOT_FOUND)
        except _NoSuchPath:
            self._get("/schemas/types", _SCHEMA_NOT_FOUND)
            return None

    def _version(self, subject: str, version: int) -> Any:
        return self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}", _VERSION_NOT_FOUND)

    def _add_references(self, document: Any, found: _References, path: tuple[str, ...]) -> None:
        """Add the texts of the schemas that a schema uses. ``path``: names that lead here."""
        references = document.get("references") if isinstance(document, dict) else None
        if not isinstance(references, list | None):
            raise Retryable("the references of a schema are no list; is the url that of a registry?")
        for reference in references or ():
            name, subject = _text(reference, "name"), _text(reference, "subject")
            version = reference.get("version")
            if not isinstance(version, int):
                raise Retryable(f"a reference to subject {_line(subject)} has no version")
            if name in found.texts or name in path:
                continue
            found.read += 1
            if found.read > MAX_REFERENCES:
                raise _TooManyReferences(f"it uses more than {MAX_REFERENCES} others, which is the limit")
            if len(path) >= MAX_REFERENCE_DEPTH:
                raise _TooManyReferences(f"it uses others more than {MAX_REFERENCE_DEPTH} deep inside each other")
            inner = self._version(subject, version)
            if inner is None:
                raise Retryable(f"a schema uses version {version} of subject {_line(subject)}, which is not there")
            text = _text(inner, "schema")
            found.characters += len(text)
            if found.characters > MAX_REFERENCE_CHARACTERS:
                raise _TooManyReferences(f"it uses others of more than {MAX_REFERENCE_CHARACTERS} characters together")
            self._add_references(inner, found, (*path, name))
            found.texts[name] = text

    def _get(self, path: str, not_found: int) -> Any:
        """Return the JSON of an answer; None if it has the error code ``not_found``."""
        answer, body = self._exchange(path)
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            document = None
        code = document.get("error_code") if isinstance(document, dict) else None
        if answer.status == http.HTTPStatus.NOT_FOUND and code == not_found:
            return None
        if answer.status != http.HTTPStatus.OK or document is None:
            kind = _NoSuchPath if answer.status == http.HTTPStatus.NOT_FOUND else Retryable
            said = document.get("message") if isinstance(document, dict) else None
            text = f": {_line(str(said))}" if said else ""
            raise kind(f"GET {path}: {answer.status} {_line(answer.reason)}{text}{_hint(answer)}")
        return document

    def _exchange(self, path: str) -> tuple[http.client.HTTPResponse, bytes]:
        """Send a request; once more if the server has closed the connection meanwhile. Return the answer and its
        body."""
        for fresh in (self._connection is None, True):
            deadline_s = time.monotonic() + self._settings.request_timeout_ms / 1000
            try:
                return self._try(path, deadline_s)
            except (http.client.HTTPException, OSError, ValueError) as error:
                self.close()
                late = isinstance(error, TimeoutError) or time.monotonic() >= deadline_s
                if late:
                    said = f"no whole answer within {self._settings.request_timeout_ms} ms"
                else:
                    said = _line(str(error)) or type(error).__name__
                if fresh or late:
                    hint = "is it up and reachable?"
                    if isinstance(error, ssl.SSLError):
                        hint = "check schema_registry.url, ca_file, cert_file and key_file"
                    raise Retryable(f"GET {path}: {said}; {hint}") from error
        raise AssertionError("the second attempt answers or raises")

    def _try(self, path: str, deadline_s: float) -> tuple[http.client.HTTPResponse, bytes]:
        """Send a request. A timeout of a socket is that of each read alone, so a timer ends slow headers."""
        connection = self._connection or self._connect()
        self._connection = connection
        timer = threading.Timer(max(0, deadline_s - time.monotonic()), _shut_down, (connection,))
        timer.daemon = True
        timer.start()
        try:
            connection.request("GET", self._parts.path.rstrip("/") + path, headers=dict(self._headers))
            answer = connection.getresponse()
        finally:
            timer.cancel()
        body = bytearray()
        while chunk := answer.read1(_CHUNK_BYTES):
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                self.close()
                raise Retryable(f"GET {path}: the answer has more than {MAX_ANSWER_BYTES} bytes")
            if time.monotonic() >= deadline_s:
                raise TimeoutError
        if answer.length:
            raise http.client.IncompleteRead(bytes(body), answer.length)
        answer.close()  # else the connection takes no further request
        return answer, bytes(body)

    def _connect(self) -> http.client.HTTPConnection:
        settings, seconds = self._settings, self._settings.request_timeout_ms / 1000
        try:
            secret = settings.secret()
        except ConfigError as error:  # a secret that is just being replaced
            raise Retryable(str(error)) from error
        self._headers = {"Accept": _ACCEPT}
        if secret is not None and settings.user is not None:
            login = base64.b64encode(f"{settings.user}:{secret}".encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"
        elif secret is not None:
            if not (secret.isascii() and secret.isprintable()):
                raise Retryable("schema_registry: the token has characters that no header of HTTP may have")
            self._headers["Authorization"] = f"Bearer {secret}"
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(self._parts.netloc, timeout=seconds)
        context = ssl.create_default_context(cafile=None if settings.ca_file is None else str(settings.ca_file))
        if settings.cert_file is not None and settings.key_file is not None:
            context.load_cert_chain(settings.cert_file, settings.key_file, _reject_pass_phrase)
        return http.client.HTTPSConnection(self._parts.netloc, timeout=seconds, context=context)


def _shut_down(connection: http.client.HTTPConnection) -> None:
    if (opened := connection.sock) is not None:
        with suppress(OSError):
            opened.shutdown(socket.SHUT_RDWR)


def _reject_pass_phrase() -> str:
    """Stands in for OpenSSL, which would ask at the terminal."""
    raise Retryable("schema_registry: key_file has a pass phrase; give a file of the key without one")


def _text(document: Any, name: str, default: str | None = None) -> str:
    found = document.get(name) if isinstance(document, dict) else None
    found = default if found is None else found
    if not isinstance(found, str):
        raise Retryable(f"the answer has no text {name!r}; is the url that of a registry?")
    return found


def _line(text: str) -> str:
    """Return what a server says as a short line without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_MESSAGE_CHARACTERS]


def _hint(answer: http.client.HTTPResponse) -> str:
    match answer.status:
        case http.HTTPStatus.OK:
            return "; the answer is no JSON: is schema_registry.url that of a registry?"
        case http.HTTPStatus.UNAUTHORIZED | http.HTTPStatus.FORBIDDEN:
            return "; check the login in schema_registry, and what it may read"
        case http.HTTPStatus.NOT_FOUND:
            return "; check the path in schema_registry.url"
    if answer.status // 100 == 3:
        return "; redirects are not followed: set schema_registry.url to the registry's own address"
    return ""
