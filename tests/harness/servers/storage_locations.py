"""Storage locations of tests: a folder, and a prefix of a real S3 server if the environment names one.

A test that takes the fixture ``any_place`` runs once on each; without a server the second run is skipped and says so.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from streamcore.storage import LocalObjectStore, ObjectStore
from streamcore.storage.s3 import S3ObjectStore
from tests.harness.servers.s3_server import BUCKET, ENDPOINT, environment

NO_SERVER = "no S3 server: name one (tests/harness/servers/s3_server.py)"


def s3_place(monkeypatch: pytest.MonkeyPatch) -> S3ObjectStore:
    """Return a new prefix; its objects stay there."""
    if not ENDPOINT:
        pytest.skip(NO_SERVER)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    return S3ObjectStore(BUCKET, f"headgate-test-{uuid.uuid4().hex}")


@pytest.fixture(params=["local", "s3"])
def any_place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """An empty storage location: a folder, or a prefix on an S3 server."""
    return LocalObjectStore(tmp_path / "place") if request.param == "local" else s3_place(monkeypatch)
