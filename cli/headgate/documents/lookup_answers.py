"""Answers of look-ups from a file: a server in this process, so that the app calls it as it calls any."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar  # a settings document is made of anything
from urllib.parse import unquote

import orjson
import yaml

from headgate.errors import InputError
from streamcore.yaml_loader import SAFE_LOADER

Answers = Mapping[str, object]
#: Entries of a look-up that say where its store is and how it is asked.
_OF_A_STORE = frozenset(
    {"url", "postgres", "redis", "table", "body", "headers", "secret_headers", "token_file", "ca_file"}
)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET /KEY with the object of the key, or 404."""

    answers: ClassVar[Answers] = {}
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        found = self.answers.get(unquote(self.path.removeprefix("/")))
        body = b"" if found is None else orjson.dumps(found, default=str)
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def _moved(lookup: Any, url: str) -> Any:
    """Return the entry of a look-up with this URL as its store."""
    if not isinstance(lookup, Mapping):
        return lookup
    return {name: value for name, value in lookup.items() if name not in _OF_A_STORE} | {"url": url}


@contextmanager
def answered(document: Mapping[str, Any], answers: Answers | None) -> Iterator[dict[str, Any]]:
    """Give the settings document with its look-ups answered from ``answers``; None: by the stores that they name."""
    if answers is None or not ("lookup" in document or "lookups" in document):
        yield dict(document)
        return
    handler = type("Handler", (_Handler,), {"answers": answers})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="lookup-answers", daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/{{key}}"
    local = {name: _moved(document[name], url) for name in ("lookup",) if name in document}
    if isinstance(further := document.get("lookups"), Mapping):
        local["lookups"] = {name: _moved(each, url) for name, each in further.items()}
    try:
        yield {**document, **local}
    finally:
        from streamcore.enrich import close_shared_enrichers

        close_shared_enrichers()
        server.shutdown()
        server.server_close()
        thread.join()


def read_answers(file: Path) -> Answers:
    """Read a file with an object for each key. ``InputError`` if it is none."""
    try:
        found = yaml.load(file.read_text(encoding="utf-8"), Loader=SAFE_LOADER)  # noqa: S506 - a safe one
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"--lookup {file}: cannot be read: {' '.join(str(error).split())}") from None
    return check_answers(found, f"--lookup {file}")


def check_answers(value: object, where: str) -> Answers:
    """Return the answers in a value; ``InputError``, naming ``where``, if it has another form."""
    if not isinstance(value, dict) or not all(isinstance(each, dict) or each is None for each in value.values()):
        raise InputError(f'{where}: write an object for each key, such as {{"c-1": {{"name": "Ann"}}, "c-2": null}}')
    return {str(key): each for key, each in value.items()}
