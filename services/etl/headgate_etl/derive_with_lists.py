"""The operator that computes derived fields with the content of lists, which it reads from the control topic.

``headgate lists publish`` sends a list, as for rules: versioned, in parts, with an owner and optionally an expiry. The
operator replies on the status lane. It applies the control records of a cut before it computes the rows of the cut, and
expires entries by the clock of the cut. So all rows of a cut are computed with one content of the lists, also when the
cut is replayed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import polars as pl

from rulecore.documents.control_keys import LIST_KEY, LIST_PART_KEY
from rulecore.documents.status import RuleStatus, StatusKind, as_reply
from rulecore.language import ListType
from rulecore.lists import routing as control
from rulecore.lists.store import ListStore, save
from rulecore.mapping.stage import MappingStage
from streamcore.kernel import ControlRecord
from streamcore.operators.base import MAIN, CutTime, Ports
from streamcore.schema import EVENT_MS, OFFSET, PARTITION
from streamcore.state import KeyValueTable
from streamcore.state.scope import REPLICATED
from streamcore.state.table import StateTable
from streamcore.topology.control_rows import CONTROL_KEY, CONTROL_VALUE

#: The port of replies to control records.
REPLIES = "replies"
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
    """Creates the operator. Spark pickles it and sends it to the workers. ``lists``: the declared lists by name."""

    stage: MappingStage
    lists: Mapping[str, ListType]

    def __call__(self) -> DeriveOperator:
        return DeriveOperator(self.stage, self.lists)


class DeriveOperator:
    """Computes derived fields (port ``MAIN``), and replies to control records about lists (port ``REPLIES``)."""

    def __init__(self, stage: MappingStage, lists: Mapping[str, ListType]) -> None:
        self.stage, self.declared = stage, lists
        self.lists = ListStore.empty()
        self._table = KeyValueTable(REPLICATED)
        self._rejected = 0

    @property
    def output_delay_ms(self) -> int:
        """Return 0: a row leaves in the cut in which it arrives."""
        return 0

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:
        """Apply the control records of the cut, then compute the derived fields of its rows."""
        rows, records = inputs
        replies = self._apply_control(records, time)
        return {MAIN: self.stage.run(rows, self.lists.contents(time.clock_ms)), REPLIES: replies}

    def tables(self) -> Mapping[str, StateTable]:
        """Return the table of stored lists."""
        return {"lists": self._table}

    def on_state_loaded(self) -> None:
        """Restore the lists from the loaded table, unless they are in memory already."""
        if dict(self._table) != dict(self.lists.records()):
            self.lists = ListStore.restore(self._table)

    def metrics(self) -> Mapping[str, int]:
        """Return the number of control records that were rejected since the last call."""
        rejected, self._rejected = self._rejected, 0
        return {"lists_rejected": rejected}

    # --- lists ------------------------------------------------------------------------------------------------------

    def _apply_control(self, records: pl.DataFrame, time: CutTime) -> pl.DataFrame:
        """Apply the control records of the cut, and return the replies; only shard 0 replies."""
        if not records.height:
            return pl.DataFrame(schema=_ANSWER)
        updates, _, deletions = control.split_records(_to_control_records(records))
        before = self.lists
        outcomes = [(self._apply(record), record) for record in (*updates, *deletions)]
        if self.lists is not before:
            save(self.lists, self._table)
        if time.shard > 0:
            return _reply_rows([])
        self._rejected += sum(status.status is StatusKind.REJECTED for status, _ in outcomes)
        return _reply_rows([as_reply(status, record) for status, record in outcomes])

    def _apply(self, record: ControlRecord) -> RuleStatus:
        """Apply one control record to the lists, unless it changes a type that expressions depend on."""
        key = (record.key or b"").decode()
        store, reply = self.lists.apply(key, record.value, partial(_list_users, self.declared))
        if (mismatch := self._type_mismatch(store, key)) is not None:
            reply = replace(reply, status=StatusKind.REJECTED, reason=mismatch)
        else:
            self.lists = store
        return reply

    def _type_mismatch(self, store: ListStore, key: str) -> str | None:
        """Return the reason if the published list of ``key`` has other types than the settings declare, or None."""
        name = key.removeprefix(LIST_KEY)
        live, declared = store.lists.get(name), self.declared.get(name)
        if key.startswith(LIST_PART_KEY) or live is None or declared is None or live.head.type == declared:
            return None
        value = "" if declared.value is None else f" with values of {declared.value}"
        return f"the settings declare list {name} of {declared.of}{value}; publish it with these types"


def _list_users(declared: Mapping[str, ListType], name: str) -> Sequence[str]:
    """Return what uses the list: a list in use cannot be deleted."""
    return ("the settings",) if name in declared else ()


def _to_control_records(records: pl.DataFrame) -> list[ControlRecord]:
    columns = records.select(PARTITION, OFFSET, CONTROL_KEY, CONTROL_VALUE)
    return [ControlRecord(p, o, k.encode(), None if v is None else v.encode()) for p, o, k, v in columns.iter_rows()]


def _reply_rows(replies: Sequence[RuleStatus]) -> pl.DataFrame:
    rows = [
        {
            "subject": reply.subject.value,
            "rule": reply.name,
            "version": reply.version,
            "status": reply.status.value,
            "reason": reply.reason,
            "rules_epoch": reply.rules_epoch,
            "control": {"partition": reply.partition, "offset": reply.offset},
            EVENT_MS: 0,
        }
        for reply in replies
    ]
    return pl.DataFrame(rows, schema=_ANSWER)
