"""The exchanges of the stage for features: events into it, and its results into the next one. Imports little: the
driver has no frames."""

from __future__ import annotations

from typing import Final

from streamcore.kernel import StreamKey

#: The routes of the events of a stream: this, and the number of the key (``RuleStream.routes``).
FIRST_ROUTE: Final = 1_000
#: The routes of values: this, less the number of the key of the features.
_VALUES: Final = -10
#: The column with the hash of the key of the rule: ``streamcore.state.table.HASH``.
RULE_HASH: Final = "__hash"
#: What every shard of the next stage is told: from when on features count, and which rules failed.
FACTS: Final = StreamKey("features", -9)


def values_rows(stream: str, route: int) -> StreamKey:
    """Return the rows with the values of the features of a key. ``route``: the number of the key."""
    return StreamKey(stream, _VALUES - route)


def find_route(rows: StreamKey) -> int | None:
    """Return the number of the key of the features whose values these rows have; None if they have none."""
    return _VALUES - rows.route if rows.route <= _VALUES else None
