"""An S3 server that the environment names, as tests of Delta tables see it.

``HEADGATE_S3_ENDPOINT`` (``http://127.0.0.1:7070``), ``HEADGATE_S3_BUCKET`` (``lake``), and the names that all clients
know: ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_REGION``. Objects are read by Arrow's client, which shares
nothing with the one that writes them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyarrow import fs

ENDPOINT: Final = os.environ.get("HEADGATE_S3_ENDPOINT", "")
BUCKET: Final = os.environ.get("HEADGATE_S3_BUCKET", "lake")
_REGION: Final = os.environ.get("AWS_REGION", "us-east-1")


@dataclass(frozen=True, slots=True)
class S3Location:
    """A table of a test's own. ``copies``: where its objects are brought for who reads files."""

    path: str
    copies: Path

    @property
    def uri(self) -> str:
        """Return the URI for settings."""
        return f"s3://{self.path}"

    def copy(self) -> Path:
        """Return the table as it is now, in a folder."""
        store = file_system()
        folder = self.copies / uuid.uuid4().hex
        folder.mkdir(parents=True)
        fs.copy_files(self.path, str(folder), source_filesystem=store, destination_filesystem=fs.LocalFileSystem())
        return folder


def file_system() -> fs.S3FileSystem:
    """Return the server's files, with the keys of the environment."""
    return fs.S3FileSystem(endpoint_override=ENDPOINT, region=_REGION)


def new_location(copies: Path) -> S3Location:
    """Return a new location."""
    return S3Location(f"{BUCKET}/headgate-test-{uuid.uuid4().hex}", copies)


def options() -> dict[str, str]:
    """Return what anyone may see."""
    return {"aws_endpoint_url": ENDPOINT, "aws_region": _REGION, "aws_allow_http": str(ENDPOINT.startswith("http:"))}


def environment() -> Mapping[str, str]:
    """Return the environment variables with which a process finds the server."""
    return {name.upper(): value for name, value in options().items()}
