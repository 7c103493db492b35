"""An HTTP server with answers that the API server of Kubernetes gave when they were recorded, and its kubeconfig."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any  # JSON of the API server

import yaml

RECORDED = Path(__file__).parents[2] / "data/rolled_back.json"
GROUP = "/apis/headgate.dev/v1alpha1/namespaces"


def recorded_answers() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a ``StreamApp`` whose second upgrade the operator rolled back, and its savepoints."""
    found = json.loads(RECORDED.read_text())
    return found["streamapp"], found["savepoints"]


@contextmanager
def serve_answers(answers: Mapping[str, object], folder: Path) -> Iterator[Path]:
    """Serve answers by path; other paths are 404. Yields the kubeconfig, in ``folder``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path)
            body = json.dumps(found if found is not None else {"message": "not found"}).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield write_kubeconfig(folder / "kubeconfig", f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def write_kubeconfig(file: Path, address: str) -> Path:
    """Write a kubeconfig without a login."""
    context = {"name": "test", "context": {"cluster": "test", "user": "test"}}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": address}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [context],
        "current-context": "test",
    }
    file.write_text(yaml.safe_dump(document))
    return file
