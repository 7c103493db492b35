"""Creates rules kernels on the workers, and the exchanges of their input. Importing this module does not import the
kernel, which takes time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rulecore.feature_stage.exchanges import FACTS, FIRST_ROUTE, RULE_HASH, values_rows
from rulecore.settings import RulesConfig
from rulecore.streams import RuleStream
from streamcore.kernel import Exchange, StreamKey

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from streamcore.kernel import Kernel
    from streamcore.schema import StreamSchema
    from streamcore.wire.lanes import Record


@dataclass(frozen=True, slots=True)
class RulesFactory(RulesConfig):
    """A configuration that creates the kernel of a shard (``KernelFactory``); it is picklable."""

    def __call__(self) -> Kernel:
        from rulecore.kernel import RulesKernel

        return RulesKernel(self)

    def for_features(self) -> FeatureStageFactory:
        """Return the factory of the stage for features, in front of these kernels."""
        return FeatureStageFactory(self)


@dataclass(frozen=True, slots=True)
class FeatureStageFactory:
    """Creates the kernel of a shard of the stage for features (``KernelFactory``); it is picklable."""

    config: RulesConfig

    def __call__(self) -> Kernel:
        from rulecore.feature_stage.kernel import FeatureKernel

        return FeatureKernel(self.config)


@dataclass(frozen=True, slots=True)
class KeyExpressions:
    """Computes the columns of a key some of which are expressions (``KeyColumns``). ``schema``: of the stream."""

    schema: StreamSchema
    key: tuple[str, ...]

    def __call__(self, events: pa.Table) -> pl.DataFrame:
        """Return the columns of the key of some events."""
        import polars as pl

        from rulecore.key_columns import parse_key_columns
        from rulecore.language import columns
        from rulecore.lists.fill_columns import with_list_columns

        expressions = parse_key_columns(self.schema, self.key)
        needed = {*self.key}.union(*(columns(one.operand) for one in expressions))
        frame = pl.DataFrame(events.select([name for name in events.column_names if name in needed]))
        return with_list_columns(frame, expressions, {}).select(self.key)


def find_exchanges(streams: Sequence[RuleStream], *, feature_stage: bool = False) -> Iterator[Exchange]:
    """Yield the exchanges that bring the events of streams to the kernels: one for each key.

    ``feature_stage``: whether the app has a stage for features. It gets events by each key too, and what it computes
    goes to the rules kernel behind it.
    """
    for stream in streams:
        name = stream.schema.name
        for route, key in enumerate(stream.routes):
            is_plain = all(stream.schema.get(column) is not None for column in key)
            columns = None if is_plain else KeyExpressions(stream.schema, key)
            yield Exchange(StreamKey(name, route), key, int(feature_stage), direct=feature_stage, columns=columns)
            if feature_stage:
                yield Exchange(StreamKey(name, FIRST_ROUTE + route), key, columns=columns)
                yield Exchange(values_rows(name, route), (RULE_HASH,), 1, hashed=True)
    if feature_stage:
        yield Exchange(FACTS, (), 1, broadcast=True)


@dataclass(frozen=True, slots=True)
class LateEventWriter:
    """Writes the events that are too late for the deduplication of their stream (``WriteLate``) to the lane ``late``.

    ``streams``: those of the app, in order of its sources.
    """

    streams: tuple[RuleStream, ...]

    def __call__(self, source: int, late: pl.DataFrame, watermark_ms: int) -> Sequence[Record]:
        """Return a record for each event, in order."""
        from rulecore.kernel import late_records
        from streamcore.operators.base import LATE_REASON

        stream = self.streams[source]
        return [
            record
            for (reason,), rows in late.group_by(LATE_REASON, maintain_order=True)
            for record in late_records(stream.schema, stream.topic, rows, watermark_ms, str(reason))
        ]
