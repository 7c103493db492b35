"""The second phase with lists: an operator that reads the control topic, and computes with the lists' content.

A list is published as for rules (``headgate lists publish``): versioned, in parts, with an owner and perhaps an end,
and answered on the status lane. Records of a cut count before its rows, and an entry's end is measured by the clock of
the cut, so every row of a cut sees the same lists, and sees them again when the cut is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import polars as pl

from headgate_etl.mapping_stage import MappingStage
from rulecore.documents.control_keys import LIST_KEY, LIST_PART_KEY
from rulecore.documents.status import RuleStatus, StatusKind, as_reply
from rulecore.language import ListType
from rulecore.lists import routing as control
from rulecore.lists.store import ListStore, save
from streamcore.kernel import ControlRecord
from streamcore.operators.base import MAIN, CutTime, Ports
from streamcore.schema import EVENT_MS, OFFSET, PARTITION
from streamcore.state import KeyValueTable
from streamcore.state.table import StateTable
from streamcore.topology.control_rows import CONTROL_KEY, CONTROL_VALUE

#: The port of answers to control records.
ANSWERS = "answers"
_ANSWER = {
    "subject": pl.String(),
    "rule": pl.String(),
    "version": pl.Int64(),
    "status": pl.String(),
    "reason": pl.String(),
    "rules_epoch": pl.Int64(),
    "control": pl.Struct({"partition": pl.Int64(), "offset": pl.Int64()}),
    EVENT_MS: pl.Int64(),
}


@dataclass(frozen=True)
class DeriveOperatorFactory:
    """Makes the operator. Travels."""

    phase: MappingStage
    lists: Mapping[str, ListType]

    def __call__(self) -> DeriveOperator:
        return DeriveOperator(self.phase, self.lists)


class DeriveOperator:
    """The operator: rows, and control records."""

    def __init__(self, phase: MappingStage, lists: Mapping[str, ListType]) -> None:
        self.phase, self.declared = phase, lists
        self.lists = ListStore.empty()
        self._table = KeyValueTable()
        self._refused = 0

    @property
    def output_delay_ms(self) -> int:
        """None."""
        return 0

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        rows, records = inputs
        responses = self._apply_control(records, time)
        return {MAIN: self.phase.run(rows, self.lists.contents(time.clock_ms)), ANSWERS: responses}

    def tables(self) -> Mapping[str, StateTable]:
        return {"lists": self._table}

    def on_state_loaded(self) -> None:
        if dict(self._table) != dict(self.lists.records()):
            self.lists = ListStore.restore(self._table)

    def metrics(self) -> Mapping[str, int]:
        """Control records that were refused since the last call."""
        refused, self._refused = self._refused, 0
        return {"lists_refused": refused}

    # --- lists ------------------------------------------------------------------------------------------------------

    def _apply_control(self, records: pl.DataFrame, time: CutTime) -> pl.DataFrame:
        """Take the records of the cut; shard 0 answers for all."""
        if not records.height:
            return pl.DataFrame(schema=_ANSWER)
        coming, _, going = control.split_records(_controls(records))
        before = self.lists
        responses = [as_reply(self._take(one), one) for one in (*coming, *going)]
        if self.lists is not before:
            save(self.lists, self._table)
        return _answer_rows(responses if time.shard == 0 else [])

    def _take(self, record: ControlRecord) -> RuleStatus:
        key = (record.key or b"").decode()
        store, answer = self.lists.apply(key, record.value, partial(_users, self.declared))
        if (wrong := self._wrong_type(store, key)) is not None:
            answer = replace(answer, status=StatusKind.REJECTED, reason=wrong)
        else:
            self.lists = store
        self._refused += answer.status is StatusKind.REJECTED
        return answer

    def _wrong_type(self, store: ListStore, key: str) -> str | None:
        """Return the type mismatch of a list that expressions use, or None."""
        name = key.removeprefix(LIST_KEY)
        live, declared = store.lists.get(name), self.declared.get(name)
        if key.startswith(LIST_PART_KEY) or live is None or declared is None or live.head.type == declared:
            return None
        value = "" if declared.value is None else f" with values of {declared.value}"
        return f"the settings declare list {name} of {declared.of}{value}; publish it with these types"


def _users(declared: Mapping[str, ListType], name: str) -> Sequence[str]:
    return ("the settings",) if name in declared else ()


def _controls(records: pl.DataFrame) -> list[ControlRecord]:
    columns = records.select(PARTITION, OFFSET, CONTROL_KEY, CONTROL_VALUE)
    return [ControlRecord(p, o, k.encode(), None if v is None else v.encode()) for p, o, k, v in columns.iter_rows()]


def _answer_rows(responses: Sequence[RuleStatus]) -> pl.DataFrame:
    rows = [
        {
            "subject": one.subject.value,
            "rule": one.name,
            "version": one.version,
            "status": one.status.value,
            "reason": one.reason,
            "rules_epoch": one.rules_epoch,
            "control": {"partition": one.partition, "offset": one.offset},
            EVENT_MS: 0,
        }
        for one in responses
    ]
    return pl.DataFrame(rows, schema=_ANSWER)
