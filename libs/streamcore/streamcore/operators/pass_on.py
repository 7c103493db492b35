"""An operator that returns its rows unchanged: the step only sends rows to other shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from streamcore.operators.base import MAIN, CutTime, Ports
from streamcore.state.table import StateTable


class PassOn:
    """Returns the rows of its one input."""

    output_delay_ms = 0

    def step(self, inputs: Sequence[pl.DataFrame], time: CutTime) -> Ports:  # noqa: ARG002 - the protocol's signature
        return {MAIN: inputs[0]}

    def tables(self) -> Mapping[str, StateTable]:
        return {}

    def on_state_loaded(self) -> None:
        """Do nothing: there is no state."""

    def metrics(self) -> Mapping[str, int]:
        return {}
