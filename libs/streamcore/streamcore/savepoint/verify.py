"""Reads a savepoint back, all of it, without restoring it: what was written can be read, and is all there."""

from __future__ import annotations

from collections import Counter

import polars as pl

from streamcore.errors import CorruptState
from streamcore.savepoint.repository import Savepoint
from streamcore.savepoint.state_files import read_parts


def verify_readable(savepoint: Savepoint) -> str:
    """Read every file; return a one-line summary. ``CorruptState`` when a file differs from the manifest. One file is
    in memory at a time."""
    found: Counter[tuple[int, str]] = Counter()
    manifest = savepoint.manifest
    for file in manifest.files:
        try:
            for part in read_parts(savepoint.content(file), file.path):
                found[file.stage, part.table] += part.frame.height
        except pl.exceptions.PolarsError as error:
            raise CorruptState(f"{file.path}: {error}; take the file from a copy") from error
    wanted = {(table.stage, table.name): table.rows for table in manifest.tables}
    if +found != +Counter(wanted):
        wrong = [
            f"{name} of stage {stage}"
            for (stage, name) in sorted(found.keys() | wanted.keys())
            if found[stage, name] != wanted.get((stage, name), 0)
        ]
        raise CorruptState(f"savepoint {manifest.name}: its rows differ from its manifest: {', '.join(wrong)}")
    return f"savepoint {manifest.name}: {found.total()} rows in {len(manifest.files)} files read back"
