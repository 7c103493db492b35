"""Options of a client library, some of which are secrets: in settings, only the names of their files or variables.

``where``: the settings that have them, for messages.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from streamcore.errors import ConfigError

_SECRET = re.compile(r"secret|token|password|sas|account_key|(?<!_)access_key(?!_id)|credential", re.IGNORECASE)


def check_options(
    where: str, options: Mapping[str, str], secret_files: Mapping[str, Path], secret_env: Mapping[str, str]
) -> None:
    """Raise ``ConfigError`` if the settings have the value of a secret, or an option twice."""
    if secrets := [name for name in options if _SECRET.search(name)]:
        raise ConfigError(f"{where} option {secrets[0]} is a secret; name its file in secret_files or secret_env")
    names = [name.lower() for group in (options, secret_files, secret_env) for name in group]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"{where} option {min(twice)} is given twice")


def read_options(
    where: str, options: Mapping[str, str], secret_files: Mapping[str, Path], secret_env: Mapping[str, str]
) -> dict[str, str]:
    """Return all options, with the secrets; ``ConfigError`` names a setting that is missing, never a secret."""
    found = dict(options)
    for name, path in secret_files.items():
        found[name] = _from_file(where, name, path)
    for name, variable in secret_env.items():
        if not (value := os.environ.get(variable, "")):
            raise ConfigError(f"{where} option {name}: environment variable {variable} is empty")
        found[name] = value
    return found


def _from_file(where: str, name: str, path: Path) -> str:
    try:
        value = path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError(f"{where} option {name}: cannot read {path}: {reason}") from None
    if not value:
        raise ConfigError(f"{where} option {name}: file {path} is empty")
    return value
