"""A client of the REST protocol of Confluent's schema registry, with one connection that it keeps.

Whatever is not an answer is ``Retryable``: no connection, no permission, an error of the server, a page of a proxy.
Only the registry's own "schema not found" says that a schema is absent.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from streamcore.errors import ConfigError, Retryable
from streamcore.schema_registry.schemas import RegisteredSchema, SchemaReference, SchemaType
from streamcore.schema_registry.settings import RegistrySettings

_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_SUBJECT_NOT_FOUND, _VERSION_NOT_FOUND, _SCHEMA_NOT_FOUND = 40401, 40402, 40403
#: The most bytes of an answer, and the most schemas that one schema uses.
MAX_ANSWER_BYTES, MAX_REFERENCES = 16 << 20, 1_000
_MESSAGE_CHARACTERS = 200


class RegistryClient:
    """Asks a registry. One thread at a time.

    The password is read again for each connection, so a new one in its file needs no restart.
    """

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._parts = urlsplit(settings.url)
        self._connection: http.client.HTTPConnection | None = None
        self._headers: Mapping[str, str] = {}

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """Return the schema with this id and all that it uses, or None if the registry does not have the id.

        Raises ``Retryable`` if the registry is away, rejects the login, or has lost a schema that this one uses.
        """
        document = self._get(f"/schemas/ids/{schema_id}", _SCHEMA_NOT_FOUND)
        if document is None:
            return None
        found: dict[str, str] = {}
        self._add_references(document, found, ())
        references = tuple(SchemaReference(name, text) for name, text in found.items())
        kind = _text(document, "schemaType", SchemaType.AVRO)
        return RegisteredSchema(schema_id, kind, _text(document, "schema"), references)

    def versions(self, subject: str) -> list[int]:
        """Return the numbers of the versions of a subject, ascending; none if the registry does not have it."""
        answer = self._get(f"/subjects/{quote(subject, safe='')}/versions", _SUBJECT_NOT_FOUND)
        if answer is None:
            return []
        if not isinstance(answer, list) or not all(isinstance(version, int) for version in answer):
            raise Retryable(f"{self.name}: the versions of subject {subject} are no list of numbers")
        return sorted(answer)

    def version_id(self, subject: str, version: int) -> int | None:
        """Return the id of the schema that is a version of a subject, or None if the version was deleted."""
        document = self._version(subject, version)
        if document is None:
            return None
        if not isinstance(document, dict) or not isinstance(found := document.get("id"), int):
            raise Retryable(f"{self.name}: version {version} of subject {subject} has no id")
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

    def _version(self, subject: str, version: int) -> Any:
        return self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}", _VERSION_NOT_FOUND)

    def _add_references(self, document: Any, found: dict[str, str], path: tuple[str, ...]) -> None:
        """Add the texts of the schemas that a schema uses to ``found``, by name. ``path``: names that lead here."""
        references = document.get("references") if isinstance(document, dict) else None
        for reference in references or ():
            name, subject = _text(reference, "name"), _text(reference, "subject")
            version = reference.get("version")
            if not isinstance(version, int):
                raise Retryable(f"{self.name}: a reference to subject {subject} has no version")
            if name in found or name in path:
                continue
            if len(found) + len(path) >= MAX_REFERENCES:
                raise Retryable(f"{self.name}: a schema uses more than {MAX_REFERENCES} others, which is the limit")
            inner = self._version(subject, version)
            if inner is None:
                raise Retryable(
                    f"{self.name}: a schema uses version {version} of subject {subject}, which is not there"
                )
            self._add_references(inner, found, (*path, name))
            found[name] = _text(inner, "schema")

    def _get(self, path: str, not_found: int) -> Any:
        """Return the JSON of an answer; None if it has the error code ``not_found``."""
        status, reason, body = self._exchange(path)
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        code = document.get("error_code") if isinstance(document, dict) else None
        if status == http.HTTPStatus.NOT_FOUND and code == not_found:
            return None
        if status != http.HTTPStatus.OK or document is None:
            said = document.get("message") if isinstance(document, dict) else None
            text = f": {str(said)[:_MESSAGE_CHARACTERS]}" if said else ""
            raise Retryable(f"{self.name}: GET {path}: {status} {reason}{text}{_hint(status)}")
        return document

    def _exchange(self, path: str) -> tuple[int, str, bytes]:
        """Send a request; once more if the server has closed the connection meanwhile."""
        for fresh in (self._connection is None, True):
            try:
                connection = self._connection or self._connect()
                self._connection = connection
                connection.request("GET", self._parts.path.rstrip("/") + path, headers=dict(self._headers))
                answer = connection.getresponse()
                body = answer.read(MAX_ANSWER_BYTES + 1)
            except (http.client.HTTPException, OSError) as error:
                self.close()
                if fresh or isinstance(error, TimeoutError):
                    said = str(error) or type(error).__name__
                    raise Retryable(f"{self.name}: GET {path}: {said}; is it up and reachable?") from error
                continue
            if len(body) > MAX_ANSWER_BYTES:
                self.close()
                raise Retryable(f"{self.name}: GET {path}: the answer has more than {MAX_ANSWER_BYTES} bytes")
            return answer.status, answer.reason, body
        raise AssertionError("the second attempt answers or raises")

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
            self._headers["Authorization"] = f"Bearer {secret}"
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(self._parts.netloc, timeout=seconds)
        context = ssl.create_default_context(cafile=None if settings.ca_file is None else str(settings.ca_file))
        if settings.cert_file is not None and settings.key_file is not None:
            context.load_cert_chain(settings.cert_file, settings.key_file)
        return http.client.HTTPSConnection(self._parts.netloc, timeout=seconds, context=context)


def _text(document: Any, name: str, default: str | None = None) -> str:
    found = document.get(name, default) if isinstance(document, dict) else None
    if not isinstance(found, str):
        raise Retryable(f"schema registry: the answer has no text {name!r}; is the url that of a registry?")
    return found


def _hint(status: int) -> str:
    match status:
        case http.HTTPStatus.UNAUTHORIZED | http.HTTPStatus.FORBIDDEN:
            return "; check the login in schema_registry, and what it may read"
        case http.HTTPStatus.NOT_FOUND:
            return "; check the path in schema_registry.url"
    return ""
