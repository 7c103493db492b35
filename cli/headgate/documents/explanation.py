"""Explains what an etl app does with one record of a sample: which stage made which column, and why it was rejected.

The whole sample runs, so that the record meets the rows before it, as for deduplication. The rows of the record are
found at each step by its place, which they carry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any  # the function of a step is any

import orjson
import polars as pl

from headgate.console.output import Json
from headgate.documents.opened import OpenedDocument
from headgate.documents.rendering import render_value
from headgate.documents.trial import TrialInput, TrialLetter
from headgate.errors import InputError
from headgate_etl.derive_with_lists import DeriveOperatorFactory
from headgate_etl.routing import RouteRows
from rulecore.mapping.explode import ExplodingStage
from rulecore.mapping.stage import MappingStage
from rulecore.mapping.types import CODE
from streamcore.operators.base import MAIN
from streamcore.topology.nodes import EnrichmentNode, SourceNode, StatefulNode, StatelessNode, TopologyNode, UnionNode
from streamcore.topology.observed_rows import observed
from streamcore.wire.raw import ORIGIN, RAW_OFFSET, RAW_PARTITION

if TYPE_CHECKING:
    from headgate_etl.documents import EtlDocument

_ROUTE = "@to:"
_VALUE = 100
#: How many rows of one record are shown at each stage.
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class MadeColumn:
    """A column that a stage made. ``how``: the expression, the mask or the like; "" for a field of the stream."""

    name: str
    value: Json
    how: str = ""

    def line(self, width: int) -> str:
        """Return the column as a line of text."""
        text = "null" if self.value is None else render_value(orjson.dumps(self.value).decode(), _VALUE)
        return f"{self.name:{width}} = {text}" + (f"    <- {self.how}" if self.how else "")


@dataclass(frozen=True, slots=True)
class ExplainedStage:
    """One stage: the values that it made, and its decision. ``row``: the number of the row, if there are several."""

    name: str
    made: tuple[MadeColumn, ...] = ()
    decided: tuple[str, ...] = ()
    row: int | None = None

    @property
    def title(self) -> str:
        """The stage, for people."""
        return self.name if self.row is None else f"{self.name}, row {self.row}"


@dataclass
class RecordExplanation:
    """The stages of one record in order. ``place``: of the record in the sample."""

    place: str
    stream: str
    value: str
    stages: list[ExplainedStage] = field(default_factory=list)
    letters: list[TrialLetter] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield the explanation as text."""
        yield f"{self.place} of {self.stream}: {render_value(self.value, _VALUE)}"
        for stage in self.stages:
            yield f"{stage.title}:"
            width = max((len(column.name) for column in stage.made), default=0)
            yield from (f"  {column.line(width)}" for column in stage.made)
            yield from (f"  {text}" for text in stage.decided)
        for letter in self.letters:
            yield f"dead letter: {letter.code}: {letter.reason}"

    def json(self) -> Json:
        """Return the explanation as JSON."""
        return {
            "place": self.place,
            "stream": self.stream,
            "stages": [
                {
                    "stage": stage.name,
                    **({} if stage.row is None else {"row": stage.row}),
                    "columns": [{"name": c.name, "value": c.value, "how": c.how} for c in stage.made],
                    "decisions": list(stage.decided),
                }
                for stage in self.stages
            ],
            "dead_letters": [letter.json() for letter in self.letters],
        }


def explain_record(document: OpenedDocument, given: TrialInput, number: int) -> RecordExplanation:
    """Explain the record with this number, from 1, of all inputs in order. ``InputError`` if there is none."""
    every = [(stream, record) for stream, records in given.records.items() for record in records]
    if number > len(every):
        raise InputError(f"--record {number}: the sample has {len(every)} records")
    stream, record = every[number - 1]
    offset = _offset(document, given, stream, number)
    found = RecordExplanation(record.place, stream, record.value.decode("utf-8", "replace"))
    watcher = _Watcher(document.settings, offset, found.stages)  # type: ignore[arg-type]  # the settings of etl
    with observed(watcher.see):
        result = document.run(given)
    found.letters = [letter for letter in result.letters if letter.place == record.place]
    watcher.finish(found.letters)
    if not found.stages and not found.letters:
        found.stages.append(
            ExplainedStage("stream", (), ("the record is an event of no stream (when), or a tombstone",))
        )
    return found


def _offset(document: OpenedDocument, given: TrialInput, stream: str, number: int) -> tuple[int, int]:
    """Return the source and the offset that a trial gives to a record."""
    topics = [source.topic for source in document.app.sources]
    numbers = {source.schema.name: topics.index(source.topic) for source in document.app.sources}
    before = [name for name, records in given.records.items() for _ in records][: number - 1]
    return numbers[stream], sum(numbers[name] == numbers[stream] for name in before)


@dataclass
class _Watcher:
    """Collects the stages of the record at (source, offset). ``rows``: of the record, after the last step; ``ids``: how
    often each id came out of the mapping."""

    settings: EtlDocument
    at: tuple[int, int]
    stages: list[ExplainedStage]
    rows: list[dict[str, Any]] = field(default_factory=list)
    ids: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def see(self, node: TopologyNode, port: str, rows: pl.DataFrame) -> None:
        """Take the rows of a step."""
        if RAW_OFFSET not in rows.columns or port != MAIN:
            return
        own = self._own(rows)
        if not own.height or isinstance(node, UnionNode):
            return
        before, self.rows = self.rows, [_visible(row) for row in own.to_dicts()]
        texts = _texts(node)
        if isinstance(node, StatelessNode) and isinstance(node.function, RouteRows):
            self.ids -= self._count(before)
            self._see_routes(node.function, own, before)
        elif isinstance(node, SourceNode):
            self._add("stream", [[MadeColumn(name, _json(value)) for name, value in self.rows[0].items()]])
        elif texts is not None or isinstance(node, EnrichmentNode):
            self.ids |= self._count(self.rows)
            known = before[0] if before else {}
            how = texts if texts is not None else dict.fromkeys(self.rows[0], self._look_up())
            made = [n for n in self.rows[0] if (n in texts if texts is not None else n not in known)]
            columns = [[MadeColumn(n, _json(row[n]), how.get(n, "")) for n in made] for row in self.rows]
            codes = own[CODE].to_list() if CODE in own.columns else [None] * own.height
            self._add(_name(node), columns, [() if code is None else (f"rejected: {code}",) for code in codes])

    def finish(self, letters: Sequence[TrialLetter]) -> None:
        """Name the rows that came to no route and are no dead letters: only duplicates do so."""
        if letters:
            return
        for values in [*self.ids.elements()][:_SHOWN]:
            names = ", ".join(f"{name} = {value}" for name, value in zip(self.settings.id, values, strict=True))
            text = f"the row is a duplicate: a row with its id came before it ({names})"
            self.stages.append(ExplainedStage("deduplicate", (), (text,)))

    def _own(self, rows: pl.DataFrame) -> pl.DataFrame:
        from streamcore.offsets import source_index

        source, offset = self.at
        own = rows.filter(pl.col(RAW_OFFSET) == offset)
        sources = [source_index(int(partition)) == source for partition in own[RAW_PARTITION].to_list()]
        return own.filter(pl.Series(sources, dtype=pl.Boolean))

    def _count(self, rows: Sequence[Mapping[str, Any]]) -> Counter[tuple[str, ...]]:
        """Return how often each id is there, as text."""
        return Counter(tuple(render_value(_json(row.get(name))) for name in self.settings.id) for row in rows)

    def _see_routes(self, step: RouteRows, own: pl.DataFrame, before: Sequence[Mapping[str, Any]]) -> None:
        unmasked = before if len(before) == len(self.rows) else [{}] * len(self.rows)
        masked = [
            name
            for name in step.masks
            if name in self.rows[0] and any(r[name] != b.get(name) for r, b in zip(self.rows, unmasked, strict=True))
        ]
        if masked:
            how = {name: self.settings.mask[name].how.value for name in masked if name in self.settings.mask}
            self._add("mask", [[MadeColumn(n, _json(row[n]), how.get(n, "")) for n in masked] for row in self.rows])
        conditions = {route.name: route.when for route in self.settings.routes}
        decided: list[tuple[str, ...]] = []
        for number in range(own.height):
            texts = []
            for route in step.routes:
                taken = bool(own[_ROUTE + route.name][number])
                text = conditions.get(route.name)
                texts.append(f"{route.name}: {'taken' if taken else 'not taken'}{f'    <- {text}' if text else ''}")
            decided.append(tuple(texts))
        self._add("route", [()] * own.height, decided)

    def _look_up(self) -> str:
        texts = [f"{each.store} by {each.key}" for each in self.settings.all_lookups.values()]
        return ", ".join(texts) or "the look-up"

    def _add(
        self, name: str, made: Sequence[Sequence[MadeColumn]], decided: Sequence[tuple[str, ...]] | None = None
    ) -> None:
        """Add a stage for each of the first rows. ``made``, ``decided``: by row."""
        texts = decided if decided is not None else [()] * len(made)
        for number, (columns, text) in enumerate(zip(made[:_SHOWN], texts, strict=False), 1):
            self.stages.append(ExplainedStage(name, tuple(columns), text, number if len(made) > 1 else None))
        rest = len(made) - _SHOWN
        if rest > 0:
            self.stages.append(ExplainedStage(name, (), (f"and {rest:,} {'row' if rest == 1 else 'rows'} more",)))


def _visible(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not _is_hidden(name)}


def _texts(node: TopologyNode) -> dict[str, str] | None:
    """Return the expressions of a mapping stage by column; None for another step."""
    stage: object = None
    if isinstance(node, StatelessNode):
        stage = node.function.mapping if isinstance(node.function, ExplodingStage) else node.function
    elif isinstance(node, StatefulNode):
        create = node.create_operator
        stage = create.stage if isinstance(create, DeriveOperatorFactory) else None
    return {one.name: one.text for one in stage.fields} if isinstance(stage, MappingStage) else None


def _name(node: TopologyNode) -> str:
    if isinstance(node, EnrichmentNode):
        return "look-up"
    if isinstance(node, StatelessNode) and isinstance(node.function, ExplodingStage):
        return "map"
    if isinstance(node, StatelessNode) and isinstance(node.function, MappingStage):
        return "derive" if node.function.keeps else "map"  # a later stage keeps the columns of the earlier ones
    return node.name or node.kind


def _is_hidden(name: str) -> bool:
    return name in ORIGIN or name.startswith(("__", "@"))


def _json(value: object) -> Json:
    found: Json = orjson.loads(orjson.dumps(value, default=str))
    return found
