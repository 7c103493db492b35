"""Two streams that one function processes: a keyed stream with a broadcast stream, or two streams with one key.

::

    orders.key_by("id").connect(payments.key_by("order_id")).process(Match())      # CoProcessFunction
    payments.key_by("card").connect(limits.broadcast()).process(Limits())          # ProcessFunction, process_control
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from streamcore.errors import ConfigError
from streamcore.operators.failures import FAILED
from streamcore.operators.process import FAILED_CONTROL, FAILED_SECOND, ProcessOperator, SecondInput
from streamcore.topology.control_rows import SCHEMA as CONTROL
from streamcore.topology.stream import BroadcastStream, KeyedStream, Stream, operate
from streamcore.wire.lanes import DEAD_LETTERS

if TYPE_CHECKING:
    from streamcore.keyed import CoProcessFunction, KeyedFunction, ProcessFunction
    from streamcore.keyed.keyed_store import KeyedLimits


@dataclass(frozen=True, eq=False)
class ConnectedStream:
    """A keyed stream connected with a broadcast stream."""

    stream: KeyedStream
    control_input: BroadcastStream

    def process(
        self,
        function: ProcessFunction,
        *,
        name: str = "",
        limits: KeyedLimits | None = None,
        failed_to: str = DEAD_LETTERS,
        failed_control_to: str = DEAD_LETTERS,
        keeps_key: bool = False,
    ) -> Stream:
        """Call a keyed function as ``KeyedStream.process`` does.

        The rows of the broadcast stream go to ``process_control``, before the events of their cut.
        ``failed_control_to``: the lane of those rows for which that call failed, with the reason.
        """
        side_lanes = {FAILED: failed_to, FAILED_CONTROL: failed_control_to}
        return process(self.stream, function, self.control_input, None, name, limits, side_lanes, keeps_key=keeps_key)


@dataclass(frozen=True, eq=False)
class CoKeyedStream:
    """Two streams with one key. The columns of the keys may have different names, and have equal types."""

    first: KeyedStream
    second: KeyedStream

    def __post_init__(self) -> None:
        first, second = ([stream.schema[name] for name in stream.key] for stream in (self.first, self.second))
        if first != second:
            raise ConfigError(
                f"connect: the keys are {_key_text(self.first)} and {_key_text(self.second)}; key both streams by as "
                "many columns of equal types: convert one with map before key_by"
            )

    def process(
        self,
        function: CoProcessFunction,
        *,
        name: str = "",
        limits: KeyedLimits | None = None,
        failed_to: str = DEAD_LETTERS,
        failed_second_to: str = DEAD_LETTERS,
        keeps_key: bool = False,
    ) -> Stream:
        """Call ``process1`` for each row of the first stream and ``process2`` for each row of the second.

        Both methods use the same states and timers of the key. The rows of a key in a cut are processed in the order of
        their event times, as far as the order within each stream permits (``streamcore.operators.process.inputs``).
        ``failed_to``, ``keeps_key``: as for ``KeyedStream.process``, of the rows and key columns of the first stream.
        ``failed_second_to``: the lane of failed rows of the second stream, which are the side output ``failed_second``.
        """
        side_lanes = {FAILED: failed_to, FAILED_SECOND: failed_second_to}
        return process(self.first, function, None, self.second, name, limits, side_lanes, keeps_key=keeps_key)


def process(
    stream: KeyedStream,
    function: KeyedFunction,
    broadcast: BroadcastStream | None,
    second: KeyedStream | None,
    name: str,
    limits: KeyedLimits | None,
    side_lanes: Mapping[str, str],
    *,
    keeps_key: bool,
) -> Stream:
    """Add the operator of a keyed function. ``keeps_key``: the outputs have the key of their call, which is checked."""
    inputs, records = [stream], None
    if second is not None:
        inputs.append(second)
    if broadcast is not None:
        records = CONTROL if broadcast.keyed is None else broadcast.keyed.schema
        inputs += [] if broadcast.keyed is None else [KeyedStream(broadcast.keyed)]
    create_operator = partial(
        ProcessOperator,
        function,
        key=stream.key,
        events=dict(stream.schema),
        second=None if second is None else SecondInput(dict(second.schema), second.key),
        control=records,
        limits=limits,
        keeps_key=keeps_key,
    )
    return operate(
        inputs,
        "process",
        create_operator,
        name=name,
        about=type(function).__name__,
        control_input=broadcast is not None and broadcast.keyed is None,
        keeps_key=keeps_key,
        side_lanes=side_lanes,
        unkeyed_ports=frozenset({FAILED_SECOND, FAILED_CONTROL}),
    )


def _key_text(stream: KeyedStream) -> str:
    return ", ".join(f"{name} {stream.schema[name]}" for name in stream.key) or "no columns"
