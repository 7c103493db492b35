"""The kinds of shuffle blocks. Imports little: the driver has no frames."""

from __future__ import annotations

import enum


class BlockKind(enum.IntEnum):
    """The kind of a block's contents. The kind of rows is ``ROWS`` plus the exchange's index in ``App.exchanges``."""

    PROGRESS = 0
    CONTROL = 1
    RECORDS = 2
    PARTITIONS = 3
    METRICS = 4
    ROWS = 16
