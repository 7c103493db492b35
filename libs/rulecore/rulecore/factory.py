"""Creates rules kernels on the workers. Importing this module does not import the kernel, which takes time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rulecore.settings import RulesConfig
from rulecore.streams import RuleStream

if TYPE_CHECKING:
    import polars as pl

    from streamcore.kernel import Kernel
    from streamcore.wire.lanes import Record


@dataclass(frozen=True, slots=True)
class RulesFactory(RulesConfig):
    """A configuration that creates the kernel of a shard (``KernelFactory``); it is picklable."""

    def __call__(self) -> Kernel:
        from rulecore.kernel import RulesKernel

        return RulesKernel(self)


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
