"""Keys that expressions use by name. Only the process that computes a digest reads its file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from streamcore.errors import ConfigError

MIN_KEY_BYTES = 16


def read_secret(file: str, what: str = "secret file") -> bytes:
    """Read a key, without surrounding white space. ``ConfigError``, which never contains the key, if the file cannot be
    read or is too short. ``what``: the kind of file, for the message."""
    try:
        key = Path(file).read_bytes().strip()
    except OSError as error:
        message = f"{what} {file}: cannot be read: {error.strerror}; make one: openssl rand -hex 32"
        raise ConfigError(message) from None
    if len(key) < MIN_KEY_BYTES:
        message = f"{what} {file}: at least {MIN_KEY_BYTES} bytes are needed; make one: openssl rand -hex 32"
        raise ConfigError(message)
    return key


@lru_cache(maxsize=64)
def find_key(file: str) -> bytes:
    """Return the key of a file, which is read once in a process."""
    return read_secret(file)
