"""A folder of files in an S3 bucket: the objects whose keys begin with a prefix.

A file is one object. An object exists only once its upload is complete, so writes are atomic. Large objects are
uploaded in parts; after a crash the parts are no object (a lifecycle rule of the bucket deletes unfinished uploads).

The server's address and the credentials come from the environment, in the usual variables:
``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``, or ``AWS_WEB_IDENTITY_TOKEN_FILE`` with
``AWS_ROLE_ARN``, or the role of the machine; ``AWS_REGION``, ``AWS_ENDPOINT_URL`` and, for an endpoint without TLS,
``AWSALLOW_HTTP=true``. So no key is in settings or in objects that are sent to other processes.

A request with its retries takes at most 90 seconds and then raises ``Retryable``. The client (obstore) is imported at
the first use, because it takes 9 MB and 20 ms. A process must not fork after that.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from hashlib import md5
from typing import IO, TYPE_CHECKING, Final, TypeVar

from streamcore.errors import ConfigError, Retryable, StreamError
from streamcore.storage.location import ALLOW_HTTP, ENDPOINTS

if TYPE_CHECKING:
    from obstore import PutMode
    from obstore.store import BackoffConfig, ClientConfig, S3Store

T = TypeVar("T")

#: The most bytes that one request reads or writes.
PIECE_BYTES: Final = 16 * 1024 * 1024

_ADDRESS = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>[\w!.*'()/=-]*))?\Z", re.ASCII)
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_TIMEOUT_S: Final = 30
_RETRY_TIMEOUT_S: Final = 60
#: ``read_tagged``: the most reads of a file whose tag is not the digest of its content, ...
_MAX_READS: Final = 50
#: ... the equal reads in a row that are believed, ...
_EQUAL_READS: Final = 3
#: ... and the pause between two reads, in seconds.
_READ_PAUSE_S: Final = 0.02
_RETRY_PAUSE: Final = timedelta(milliseconds=200)
#: In errors if the environment has no keys: the client then asks the metadata service of a cloud machine.
_METADATA_SERVICE = re.compile(r"/latest/(api|meta-data)/")


@dataclass(frozen=True, slots=True)
class S3ObjectStore:
    """The objects whose keys begin with ``prefix/``; with an empty prefix, all objects of the bucket."""

    bucket: str
    prefix: str = ""

    @classmethod
    def parse(cls, url: str) -> S3ObjectStore:
        """Return the folder with this address, ``s3://bucket/prefix``. Raise ``ConfigError`` for any other text."""
        match = _ADDRESS.match(url)
        parts = [] if match is None else [part for part in (match["prefix"] or "").split("/") if part]
        if match is None or {".", ".."} & set(parts):
            raise ConfigError(
                f"{_without_user(url)}: no address of a bucket; write s3://bucket/prefix, without keys, a port or "
                "parameters (the environment has those)"
            )
        return cls(match["bucket"], "/".join(parts))

    @property
    def url(self) -> str:
        """See ``ObjectStore``."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def under(self, name: str) -> S3ObjectStore:
        """See ``ObjectStore``."""
        return S3ObjectStore(self.bucket, self._key(name))

    def write(self, name: str, content: bytes) -> None:
        """See ``ObjectStore``."""
        import obstore

        with _naming(self, name):
            obstore.put(_store(self.bucket), self._key(name), content, chunk_size=PIECE_BYTES)

    def read(self, name: str) -> bytes | None:
        """See ``ObjectStore``. A large object is read in several requests, so it must not be replaced meanwhile."""
        store, key = _store(self.bucket), self._key(name)
        with _naming(self, name):
            return _unless_missing(lambda: _read_whole(store, key))

    def write_parts(self, name: str, parts: Sequence[bytes]) -> None:
        """See ``ObjectStore``."""
        import obstore

        with _naming(self, name):
            obstore.put(_store(self.bucket), self._key(name), iter(parts), chunk_size=PIECE_BYTES)

    def read_range(self, name: str, start: int, size: int) -> bytes | None:
        """See ``ObjectStore``. One request of at most ``PIECE_BYTES`` bytes after the other."""
        import obstore
        from obstore.exceptions import BaseError

        store, key, end = _store(self.bucket), self._key(name), start + size
        ends = [(n, min(end, n + PIECE_BYTES)) for n in range(start, end, PIECE_BYTES)]

        def read() -> bytes:
            try:
                return b"".join(bytes(obstore.get_range(store, key, start=a, end=b)) for a, b in ends)
            except BaseError as error:
                if _code(error) == "InvalidRange":  # the file ends before its first byte
                    return b""
                raise

        with _naming(self, name):
            return _unless_missing(read)

    def write_from(self, name: str, file: IO[bytes]) -> None:
        """Write an object of any size from the contents of ``file``."""
        import obstore

        with _naming(self, name):
            obstore.put(_store(self.bucket), self._key(name), file, chunk_size=PIECE_BYTES)

    def read_tagged(self, name: str) -> tuple[bytes, str] | None:
        """Return content and tag (``ETag``) of a small file; None if it does not exist.

        Some servers may return content and tag of two different versions while the file is replaced (one of four
        servers did, under constant writes). So a pair is returned only if the tag is the MD5 digest of the content, as
        it usually is, or if several reads in a row are equal. Raises ``Retryable`` if neither happens.
        """
        store, key = _store(self.bucket), self._key(name)
        equal_reads, last = 0, None
        for _ in range(_MAX_READS):
            with _naming(self, name):
                tagged = _unless_missing(lambda: _with_tag(store, key))
            if tagged is None or tagged[1].strip('"') == md5(tagged[0], usedforsecurity=False).hexdigest():
                return tagged
            equal_reads, last = equal_reads + 1 if tagged == last else 1, tagged
            if equal_reads == _EQUAL_READS:
                return tagged
            time.sleep(_READ_PAUSE_S)
        raise Retryable(f"{self.url}/{name}: is being replaced all the time")

    def exchange(self, name: str, content: bytes, tag: str | None) -> str | None:
        """Replace a small file if it has this tag; create it if ``tag`` is None. Return its new tag.

        Returns None if the file has another tag or exists. If the client repeated a request whose response was lost,
        that may be the result of this very call.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        condition: PutMode = "create" if tag is None else {"e_tag": tag}
        with _naming(self, name):
            try:
                result = obstore.put(_store(self.bucket), self._key(name), content, mode=condition, use_multipart=False)
                return result["e_tag"]
            except (AlreadyExistsError, PreconditionError):
                return None

    def discard(self, name: str) -> None:
        """See ``ObjectStore``."""
        import obstore

        with _naming(self, name):
            obstore.delete(_store(self.bucket), self._key(name))

    def folders(self) -> list[str]:
        """See ``ObjectStore``."""
        import obstore

        with _naming(self):
            prefixes = obstore.list_with_delimiter(_store(self.bucket), self.prefix or None)["common_prefixes"]
        return sorted(self._name(prefix) for prefix in prefixes)

    def files(self) -> list[str]:
        """See ``ObjectStore``."""
        return sorted(map(self._name, self._keys()))

    def remove_unfinished(self) -> None:
        """See ``ObjectStore``. The parts of an upload that did not end are no object."""

    def remove(self) -> None:
        """See ``ObjectStore``."""
        import obstore

        keys = [*self._keys()]
        with _naming(self):
            if keys:
                obstore.delete(_store(self.bucket), keys)

    def _keys(self) -> Iterator[str]:
        import obstore

        with _naming(self):
            for chunk in obstore.list(_store(self.bucket), self.prefix or None, chunk_size=1_000):
                yield from (entry["path"] for entry in chunk)

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}".lstrip("/")

    def _name(self, key: str) -> str:
        return key[len(self.prefix) :].strip("/")


@cache
def _store(bucket: str) -> S3Store:
    """Return the process's client of a bucket, which keeps connections and temporary credentials."""
    from obstore.store import S3Store

    client: ClientConfig = {"timeout": timedelta(seconds=_TIMEOUT_S), "connect_timeout": timedelta(seconds=5)}
    pauses: BackoffConfig = {"init_backoff": _RETRY_PAUSE, "max_backoff": 25 * _RETRY_PAUSE, "base": 2}
    plain = any(os.environ.get(name, "").startswith("http://") for name in ENDPOINTS)
    if plain and os.environ.get(ALLOW_HTTP, "").lower() not in ("true", "1"):
        raise ConfigError(
            f"s3://{bucket}: the endpoint in the environment has no TLS; set {ALLOW_HTTP}=true if it is meant"
        )
    client["allow_http"] = plain
    try:
        return S3Store(
            bucket,
            client_options=client,
            retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=_RETRY_TIMEOUT_S), "backoff": pauses},
        )
    except Exception as error:
        raise ConfigError(f"s3://{bucket}: {_client_message(error)}; look at the environment's AWS_ names") from None


def _read_whole(store: S3Store, key: str) -> bytes:
    """Return the content of an object, read in pieces if it is large."""
    import obstore

    first = obstore.get(store, key)
    size = first.meta["size"]
    if size <= PIECE_BYTES:
        return bytes(first.bytes())
    del first
    starts = range(0, size, PIECE_BYTES)
    pieces = (obstore.get_range(store, key, start=n, end=min(size, n + PIECE_BYTES)) for n in starts)
    return b"".join(map(bytes, pieces))


def _with_tag(store: S3Store, key: str) -> tuple[bytes, str]:
    """Return content and tag of one response."""
    import obstore

    response = obstore.get(store, key)
    tag = response.meta["e_tag"]
    assert tag is not None, "S3 has a tag for every object"
    return bytes(response.bytes()), tag


def _unless_missing(read: Callable[[], T]) -> T | None:
    """Call ``read``; return None if the object does not exist. A missing bucket is an error."""
    try:
        return read()
    except FileNotFoundError as error:
        if _code(error) == "NoSuchKey":
            return None
        raise


@contextmanager
def _naming(folder: S3ObjectStore, name: str = "") -> Iterator[None]:
    """Turn the client's errors in the block into errors of ``streamcore.errors``, which name the file.

    The client's exception is not chained, because its text may contain signed requests.
    """
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError) as error:
        raise _to_stream_error(f"{folder.url}/{name}".rstrip("/"), error) from None


def _to_stream_error(where: str, error: Exception) -> StreamError:
    """Return our error for an error of the client. ``where``: the file's URL."""
    code, status = _code(error), _STATUS.search(str(error))
    if _METADATA_SERVICE.search(str(error)):
        return ConfigError(
            f"{where}: no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where the machine has a role"
        )
    if code == "NoSuchBucket":
        return ConfigError(f"{where}: there is no such bucket; make it, or name another")
    if status is not None and status[1] in ("401", "403"):
        return ConfigError(
            f"{where}: not allowed ({code or status[1]}); the keys in the environment must be the server's, and may "
            "list, read, write and delete there"
        )
    if status is not None and status[1] == "404":
        return ConfigError(f"{where}: not found ({code}); look at AWS_ENDPOINT_URL, the keys and the bucket")
    return Retryable(f"{where}: {_client_message(error)}")


def _code(error: Exception) -> str | None:
    """Return the server's error code, or None."""
    match = _CODE.search(str(error))
    return None if match is None else match[1]


def _client_message(error: Exception) -> str:
    """Return the client's message, without the server's response and the client's internals."""
    text = str(error).partition("Debug source:")[0].partition("<?xml")[0]
    code = _code(error)
    return " ".join(text.split()).rstrip(" :") + (f" {code}" if code else "")


def _without_user(url: str) -> str:
    """Return the address without credentials and parameters, for messages."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
