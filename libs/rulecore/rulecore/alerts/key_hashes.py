"""Finds the keys in the text of suppression entries, so that another number of shards can divide the entries.

An entry's text has the values of some columns. They contain the columns by which the events of its rule are routed
(``compile.rule.check_suppress``), so the values decide which shard owns the entry. An entry of a rule that is gone, or
that the present version of its rule cannot have written, has no effect any more and is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import orjson
import polars as pl

from rulecore.compile.rule import CompiledRule
from rulecore.key_columns import Key, keyed_schema
from rulecore.language.types import Value
from rulecore.ruleset.ruleset import RuleSet
from rulecore.streams import find_stream
from streamcore.columnar.polars_types import polars_type
from streamcore.hashing import UInt64Array, hash_columns
from streamcore.schema import StreamSchema
from streamcore.state.scope import HashedRows


class EntryKey(NamedTuple):
    """The key of an entry: the names of columns of a stream, and their values."""

    stream: str
    route_key: Key
    columns: tuple[str, ...]
    values: Sequence[Value]


def suppression_key(text: str, rules: RuleSet) -> EntryKey | None:
    """Return the key of an entry of ``Suppression``; None if no version can have written it."""
    rule_id, mode, values = orjson.loads(text)
    for rule in _versions(rule_id, rules):
        if rule.rule.suppress is not None and rule.rule.status.value == mode:
            columns = tuple(rule.rule.suppress.by or rule.group_by)
            if len(columns) == len(values):
                return EntryKey(rule.rule.on, rule.route_key, columns, values)
    return None


def _versions(rule_id: str, rules: RuleSet) -> Iterable[CompiledRule]:
    return (rule for rule in (rules.live(rule_id), rules.candidate(rule_id)) if rule is not None)


def owned_entries(rows: pl.DataFrame, rules: RuleSet) -> HashedRows:
    """Return the entries of ``Suppression`` that have an effect, each with the hash that decides its shard."""
    keys = [suppression_key(text, rules) for text in rows["key"].to_list()]
    hashes = np.zeros(rows.height, dtype=np.uint64)
    by_columns: dict[tuple[str, Key, Key], list[int]] = {}
    for row, key in enumerate(keys):
        if key is not None:
            by_columns.setdefault(key[:3], []).append(row)
    for (stream, route_key, columns), indexes in by_columns.items():
        values = [keys[row].values for row in indexes]  # type: ignore[union-attr]  # None is in no group
        hashes[indexes] = _hash_values(
            keyed_schema(find_stream(rules.streams, stream), columns), route_key, columns, values
        )
    known = np.fromiter((key is not None for key in keys), np.bool_, len(keys))
    return rows.filter(pl.Series(known)), hashes[known]


def _hash_values(
    schema: StreamSchema, route_key: Key, columns: Sequence[str], rows: Sequence[Sequence[Value]]
) -> UInt64Array:
    """Return the hashes by which the events with these values are routed."""
    dtypes: Mapping[str, pl.DataType] = {field.name: polars_type(field.type) for field in schema.fields}
    places = [columns.index(name) for name in route_key]
    routed = [
        pl.Series(name, [row[place] for row in rows], dtype=dtypes[name], strict=False)
        for name, place in zip(route_key, places, strict=True)
    ]
    return hash_columns(routed, len(rows))
