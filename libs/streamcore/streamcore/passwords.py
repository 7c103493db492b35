"""Reads the password or key of a server from an environment variable or a file; settings have only their names."""

from __future__ import annotations

import os
from pathlib import Path

from streamcore.errors import ConfigError


def read_password(store: str, file: Path | None, variable: str | None) -> str | None:
    """Return the password; None without one. ``ConfigError`` names ``store`` and the file that cannot be read."""
    if variable is not None:
        return os.environ.get(variable)
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ConfigError(f"{store}: cannot read {file}: {error.strerror}") from None
