"""Loads the schema of a stream from its stream file, ``NAME.yaml`` in the folder of stream files."""

from __future__ import annotations

from pathlib import Path

import yaml

from headgate.errors import InputError
from streamcore.schema import StreamSchema
from streamcore.yaml_loader import SAFE_LOADER

_SHIPPED = Path(__file__).resolve().parents[3] / "streams"


def default_folder() -> Path:
    """Return ``streams/`` in the working directory, or else the shipped one."""
    here = Path("streams")
    return here if here.is_dir() else _SHIPPED


def load_stream(name: str, folder: Path | None = None) -> StreamSchema:
    """Load the schema of a stream. Raises ``InputError`` if there is no such file or it cannot be read, and
    ``ConfigError`` for a wrong entry."""
    directory = folder or default_folder()
    path = directory / f"{name}.yaml"
    known = sorted(p.stem for p in directory.glob("*.yaml"))
    if name not in known:
        raise InputError(f"stream {name!r}: no {path}; streams here: {', '.join(known) or 'none'}; see --streams")
    return read_stream(path)


def read_stream(path: Path) -> StreamSchema:
    """Read the schema in a stream file. Raises ``InputError`` and ``ConfigError`` as ``load_stream`` does."""
    return StreamSchema.parse(read_document(path))


def read_document(path: Path) -> dict[str, object]:
    """Read the document in a stream file, as it is. Raises ``InputError`` if it cannot be read."""
    name = path.stem
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=SAFE_LOADER)  # noqa: S506 - a safe one
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(
            f"stream {name}: cannot read {path}: {' '.join(str(error).split())}; correct the file"
        ) from None
    if not isinstance(document, dict):
        raise InputError(f"stream {name}: {path} is not a mapping; it needs name, fields, event_time and keys")
    return document
