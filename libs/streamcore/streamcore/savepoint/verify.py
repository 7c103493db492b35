"""Verifies a savepoint: reads all its files, without restoring it."""

from __future__ import annotations

from collections import Counter

import polars as pl

from streamcore.errors import CorruptState
from streamcore.savepoint.repository import Savepoint
from streamcore.savepoint.state_files import read_parts


def verify_readable(savepoint: Savepoint) -> str:
    """Read every file, one at a time; return a one-line summary.

    Raises ``CorruptState`` if a file, or a table's number of rows, differs from the manifest.
    """
    counts: Counter[tuple[int, str]] = Counter()
    manifest = savepoint.manifest
    for file in manifest.files:
        try:
            for part in read_parts(savepoint.content(file), file.path):
                counts[file.stage, part.table] += part.frame.height
        except pl.exceptions.PolarsError as error:
            raise CorruptState(f"{file.path}: {error}; take the file from a copy") from error
    expected = {(table.stage, table.name): table.rows for table in manifest.tables}
    if +counts != +Counter(expected):
        wrong = [
            f"{name} of stage {stage}"
            for (stage, name) in sorted(counts.keys() | expected.keys())
            if counts[stage, name] != expected.get((stage, name), 0)
        ]
        raise CorruptState(f"savepoint {manifest.name}: its rows differ from its manifest: {', '.join(wrong)}")
    return f"savepoint {manifest.name}: {counts.total()} rows in {len(manifest.files)} files read back"
