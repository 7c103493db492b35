"""The values of features of other keys at the events of a cut, as the stage for features has computed them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import polars as pl

from rulecore.compile.feature import CompiledFeature
from rulecore.compile.rule import CompiledRule
from rulecore.key_columns import Key
from streamcore.columnar.polars_types import polars_type
from streamcore.schema import OFFSET, PARTITION

_PRESENT = "__present_"


@dataclass(frozen=True, slots=True)
class FeatureValues:
    """The values at some events, by the key of the features: ``PARTITION`` and ``OFFSET`` of each event, and a column
    for each feature. ``since_ms``: by fingerprint, the event time from which a feature is complete."""

    frames: Mapping[Key, pl.DataFrame] = field(default_factory=dict)
    since_ms: Mapping[str, int] = field(default_factory=dict)

    def join(self, events: pl.DataFrame, features: Iterable[CompiledFeature]) -> pl.DataFrame:
        """Return the events with a column for each feature, in their order."""
        wanted: dict[Key, dict[str, pl.DataType]] = {}
        for one in features:
            wanted.setdefault(one.route_key, {})[one.column] = polars_type(one.type)
        for key, columns in sorted(wanted.items()):
            values, present = self.frames.get(key), _present(key)
            if values is None:
                nothing = {name: pl.lit(None, kind) for name, kind in columns.items()}
                events = events.with_columns(**nothing, **{present: pl.lit(value=False)})
                continue
            place = [pl.col(PARTITION).cast(events.schema[PARTITION]), pl.col(OFFSET)]
            known = [pl.col(name) if name in values.columns else pl.lit(None, kind) for name, kind in columns.items()]
            found = values.select(
                *place, *(one.alias(name) for one, name in zip(known, columns, strict=True)), pl.lit(1).alias(present)
            )
            joined = events.join(found, on=[PARTITION, OFFSET], how="left", maintain_order="left")
            events = joined.with_columns(pl.col(present).is_not_null())
        return events

    @staticmethod
    def is_known(rule: CompiledRule, events: pl.DataFrame) -> pl.Series | None:
        """Return of each joined event whether the features of other keys that the rule reads have values there; None if
        it reads none."""
        if not rule.other_keys:
            return None
        return events.select(pl.all_horizontal(_present(key) for key in rule.other_keys)).to_series()


def _present(key: Key) -> str:
    return _PRESENT + "/".join(key)
