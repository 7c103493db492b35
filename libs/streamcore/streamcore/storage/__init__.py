"""Object stores: named files under one address, written whole or not at all.

``object_store`` the protocol; ``local`` a folder of a file system; ``s3`` a prefix of a bucket, and the only module
that knows a client of object stores, which it loads when one is used. Exists so that the code that writes and reads
files need not know where they are. Promises: a file that is listed or read was written to its end; a name is a relative
path with ``/``. Does not know what is in the files, and Spark's own, which go by Hadoop's clients.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from streamcore.errors import ConfigError
from streamcore.storage.local import LocalObjectStore
from streamcore.storage.location import BUCKETS, Location
from streamcore.storage.object_store import ObjectStore

_FILE: Final = "file://"


def open_object_store(url: str | Location) -> ObjectStore:
    """Return the folder of an address: a path of this machine, or ``s3://bucket/prefix``. ``ConfigError`` for other
    kinds.

    Nothing is asked of a server here.
    """
    text = str(url)
    if text.startswith(BUCKETS):
        from streamcore.storage.s3 import S3ObjectStore

        return S3ObjectStore.parse(text)
    if "://" in text and not text.startswith(_FILE):
        raise ConfigError(
            f"{text}: this kind of place is not known; give a path that every machine of the app has, or "
            "s3://bucket/prefix"
        )
    return LocalObjectStore(Path(text.removeprefix(_FILE)))


__all__ = ["LocalObjectStore", "ObjectStore", "open_object_store"]
