"""The local OpenSearch: other processes find it, it keeps its data over a kill, and it rejects a port in use."""

from __future__ import annotations

import json
import socket
import urllib.request
from pathlib import Path

import pytest

from headgate.errors import OpenSearchError
from headgate.local.servers.base import Lifetime
from headgate.local.servers.opensearch import EmbeddedOpenSearch, OpenSearchNodeSettings

pytestmark = [pytest.mark.opensearch, pytest.mark.slow]


def _ask(url: str, method: str = "GET", body: object = None) -> dict[str, object]:
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, content, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        found = json.load(answer)
    assert isinstance(found, dict)
    return found


def test_a_node_is_found_by_its_folder_and_keeps_acknowledged_documents_over_a_kill(tmp_path: Path) -> None:
    settings = OpenSearchNodeSettings(tmp_path / "node", lifetime=Lifetime.WITH_PARENT, short_lived=True)
    node, other = EmbeddedOpenSearch(settings), EmbeddedOpenSearch(settings)
    with pytest.raises(OpenSearchError, match="call start"):
        _ = node.url
    url = node.start()
    assert other.start() == url
    _ask(f"{url}/things/_doc/1", "PUT", {"a": 1})
    node.kill()
    assert node.running is None
    assert node.start() == url
    assert _ask(f"{url}/things/_doc/1")["_source"] == {"a": 1}
    node.stop()
    assert other.running is None


def test_a_port_in_use_is_rejected(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = OpenSearchNodeSettings(tmp_path / "node", port=taken.getsockname()[1])
        with pytest.raises(OpenSearchError, match="is used by another program"):
            EmbeddedOpenSearch(settings).start()
