"""A prefix of an S3 bucket as a place for files.

A file is one object, and an object is there when it was sent to its end: there is no rename, and none is needed. Large
ones are sent in parts, which count only when the last request joins them; what a crash leaves of them is no object
(a rule of the bucket for unfinished uploads removes it).

Who reaches the server, how, and with which keys is in the environment, by the names that all clients know:
``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``, or ``AWS_WEB_IDENTITY_TOKEN_FILE`` with
``AWS_ROLE_ARN``, or the role of the machine; ``AWS_REGION``, ``AWS_ENDPOINT_URL`` and, for an endpoint without TLS,
``AWS_ALLOW_HTTP=true``. So no key is in settings, values or what is sent to other processes: each reads its own.

Every request ends, with its repetitions, within a minute and a half; then it is ``Retryable``. The client (obstore) is
loaded with the first use: 9 MB and 20 ms. Not to be used before a process forks.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from hashlib import md5
from typing import IO, TYPE_CHECKING, Final, TypeVar

from streamcore.errors import ConfigError, Retryable, StreamError
from streamcore.storage.location import ENDPOINTS

if TYPE_CHECKING:
    from obstore import PutMode
    from obstore.store import BackoffConfig, ClientConfig, S3Store

T = TypeVar("T")

#: What one request carries at most.
PIECE_BYTES: Final = 16 * 1024 * 1024

_ADDRESS = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>[\w!.*'()/=-]*))?\Z", re.ASCII)
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_TIMEOUT_S: Final = 30
_PATIENCE_S: Final = 60
#: For a version of a file whose tag is no digest of its content: it is looked at so often at most, ...
_LOOKS: Final = 50
#: ... until it was the same so often, ...
_ALIKE: Final = 3
#: ... with this between two looks.
_LOOK_S: Final = 0.02
_PAUSE: Final = timedelta(milliseconds=200)
_ALLOW: Final = "AWS_ALLOW_HTTP"
#: Asked for where the environment has no keys: the metadata service of a cloud's machine.
_MACHINE = re.compile(r"/latest/(api|meta-data)/")


@dataclass(frozen=True, slots=True)
class S3ObjectStore:
    """Objects whose keys begin with ``prefix/``; with an empty prefix all of the bucket."""

    bucket: str
    prefix: str = ""

    @classmethod
    def parse(cls, url: str) -> S3ObjectStore:
        """Of ``s3://bucket/prefix``; ``ConfigError`` for anything else."""
        found = _ADDRESS.match(url)
        parts = [] if found is None else [part for part in (found["prefix"] or "").split("/") if part]
        if found is None or {".", ".."} & set(parts):
            raise ConfigError(
                f"{_without_user(url)}: no address of a bucket; write s3://bucket/prefix, without keys, a port or "
                "parameters (the environment has those)"
            )
        return cls(found["bucket"], "/".join(parts))

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
        """See ``ObjectStore``. Large ones come in pieces: nothing here replaces an object that is as large."""
        store, key = _store(self.bucket), self._key(name)
        with _naming(self, name):
            return _unless_missing(lambda: _whole(store, key))

    def write_from(self, name: str, file: IO[bytes]) -> None:
        """Write an object from a file, however large."""
        import obstore

        with _naming(self, name):
            obstore.put(_store(self.bucket), self._key(name), file, chunk_size=PIECE_BYTES)

    def read_tagged(self, name: str) -> tuple[bytes, str] | None:
        """Read a small file with the tag of this version; None where there is none.

        A server that keeps the two apart may answer with a tag and a content of two versions while the file is replaced
        (seen: one of four, under constant writes). So a pair counts when the tag is the content's digest, as it mostly
        is, or when it is the same several times; ``Retryable`` when it never is.
        """
        store, key = _store(self.bucket), self._key(name)
        same, last = 0, None
        for _ in range(_LOOKS):
            with _naming(self, name):
                found = _unless_missing(lambda: _with_tag(store, key))
            if found is None or found[1].strip('"') == md5(found[0], usedforsecurity=False).hexdigest():
                return found
            same, last = same + 1 if found == last else 1, found
            if same == _ALIKE:
                return found
            time.sleep(_LOOK_S)
        raise Retryable(f"{self.url}/{name}: is being replaced all the time")

    def exchange(self, name: str, content: bytes, tag: str | None) -> str | None:
        """Write a small file if it has this tag, or, with None, if it is not there; its new tag.

        None where that was refused. After an answer that was lost it may be this very change that is in the way.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        condition: PutMode = "create" if tag is None else {"e_tag": tag}
        with _naming(self, name):
            try:
                made = obstore.put(_store(self.bucket), self._key(name), content, mode=condition, use_multipart=False)
                return made["e_tag"]
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
            found = obstore.list_with_delimiter(_store(self.bucket), self.prefix or None)["common_prefixes"]
        return sorted(self._name(prefix) for prefix in found)

    def files(self) -> list[str]:
        """See ``ObjectStore``."""
        return sorted(map(self._name, self._keys()))

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
            for some in obstore.list(_store(self.bucket), self.prefix or None, chunk_size=1_000):
                yield from (one["path"] for one in some)

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}".lstrip("/")

    def _name(self, key: str) -> str:
        return key[len(self.prefix) :].strip("/")


@cache
def _store(bucket: str) -> S3Store:
    """Return the client of a bucket, one a process: it keeps connections, and keys that are valid for an hour."""
    from obstore.store import S3Store

    client: ClientConfig = {"timeout": timedelta(seconds=_TIMEOUT_S), "connect_timeout": timedelta(seconds=5)}
    pauses: BackoffConfig = {"init_backoff": _PAUSE, "max_backoff": 25 * _PAUSE, "base": 2}
    plain = any(os.environ.get(name, "").startswith("http://") for name in ENDPOINTS)
    if plain and os.environ.get(_ALLOW, "").lower() not in ("true", "1"):
        raise ConfigError(
            f"s3://{bucket}: the endpoint in the environment has no TLS; set {_ALLOW}=true if it is meant"
        )
    client["allow_http"] = plain
    try:
        return S3Store(
            bucket,
            client_options=client,
            retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=_PATIENCE_S), "backoff": pauses},
        )
    except Exception as error:
        raise ConfigError(f"s3://{bucket}: {_client_message(error)}; look at the environment's AWS_ names") from None


def _whole(store: S3Store, key: str) -> bytes:
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
    import obstore

    found = obstore.get(store, key)
    tag = found.meta["e_tag"]
    assert tag is not None, "S3 has a tag for every object"
    return bytes(found.bytes()), tag


def _unless_missing(read: Callable[[], T]) -> T | None:
    """Call ``read``; return None where there is no such object. A missing bucket is an error."""
    try:
        return read()
    except FileNotFoundError as error:
        if _code(error) == "NoSuchKey":
            return None
        raise


@contextmanager
def _naming(folder: S3ObjectStore, name: str = "") -> Iterator[None]:
    """Turn the client's errors into ours. Their text may hold what was signed with a key, so it goes no further."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError) as error:
        raise _to_stream_error(f"{folder.url}/{name}".rstrip("/"), error) from None


def _to_stream_error(where: str, error: Exception) -> StreamError:
    code, status = _code(error), _STATUS.search(str(error))
    if _MACHINE.search(str(error)):
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
    """Return the server's error code, None without one."""
    found = _CODE.search(str(error))
    return None if found is None else found[1]


def _client_message(error: Exception) -> str:
    """Return the client's message, without the server's response and the client's internals."""
    text = str(error).partition("Debug source:")[0].partition("<?xml")[0]
    code = _code(error)
    return " ".join(text.split()).rstrip(" :") + (f" {code}" if code else "")


def _without_user(url: str) -> str:
    """Remove credentials that may have been written into the address."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
