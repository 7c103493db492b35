"""Measures rules that read features of several keys, in the kernels of both stages, without Spark, Kafka and JSON.

Fifty rules by user read three features each: all of the user, or of the user, the card and the device. The second ones
need the stage for features; the values that it sends are packed and unpacked as for the shuffle. Rules look at payments
alone, half of the events. The alerts are compared with those that a loop over all events finds.

    POLARS_MAX_THREADS=1 taskset -c 0 python -m bench.kernels.feature_stage [--events N]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import orjson
import polars as pl
import pyarrow as pa

from bench.harness.result import Result, show
from bench.kernels.features import CUT, DISORDER_MS, HOUR, SCHEMA, generate
from rulecore.factory import RulesFactory, find_exchanges
from rulecore.streams import RuleStream
from streamcore.engine.block_kind import BlockKind
from streamcore.engine.shuffle import ShuffleBlock, pack_progress, pack_rows, unpack_blocks
from streamcore.kernel import ControlRecord, Cut, Exchange, StreamKey
from streamcore.key_space import KeySpace
from streamcore.schema import EVENT_MS
from streamcore.state import MemoryBlobs, StateLog, StateSettings
from streamcore.watermark import NO_WATERMARK
from streamcore.wire.arrow_ipc import to_table
from streamcore.wire.lanes import ALERTS

RULES, SHARE = 50, 0.01
#: Of each feature of a rule: its key and how many hours back it counts.
OF_USER = (("user_id", 24), ("user_id", 12), ("user_id", 6))
OF_SEVERAL = (("user_id", 24), ("card", 24), ("device", 24))
Features = Sequence[tuple[str, int]]


def count_before(frame: pl.DataFrame, features: Features) -> list[int]:
    """Return of each event the sum of the features, which count the key's events of so many hours before it."""
    routes = [SCHEMA.names.index(key) for key, _ in features]
    counts: list[Counter[tuple[object, int]]] = [Counter() for _ in features]
    sums = []
    for row in frame.select(*SCHEMA.names, EVENT_MS).iter_rows():
        pane, total = row[-1] // HOUR, 0
        for own, route, (_, hours) in zip(counts, routes, features, strict=True):
            total += sum(own[row[route], pane - n] for n in range(hours))
            own[row[route], pane] += 1
        sums.append(total)
    return sums


def control(features: Features, bounds: Iterable[int]) -> list[ControlRecord]:
    """Return a rule for each bound."""
    own = [
        {"name": f"f{n}", "of": "count(*)", "by": [key], "within": {"sliding": f"{hours}h", "every": "1h"}}
        for n, (key, hours) in enumerate(features)
    ]
    entries = {"version": 1, "owner": "bench", "on": "shop", "group_by": ["user_id"], "features": own}
    then = {"severity": "low", "message": "m"}
    return [
        ControlRecord(0, n, f"r{n}".encode(), orjson.dumps({**entries, "id": f"r{n}", "where": where, "then": then}))
        for n, where in enumerate(f"type = 'payment' and f0 + f1 + f2 >= {bound}" for bound in bounds)
    ]


def shuffle(
    exchanges: Sequence[Exchange], rows: Mapping[StreamKey, pl.DataFrame | pa.Table]
) -> Mapping[StreamKey, pl.DataFrame]:
    """Return the rows of the first stage as the second one gets them."""
    blocks = [ShuffleBlock(0, BlockKind.PROGRESS, 0, pack_progress((), 0))]
    for index, exchange in enumerate(exchanges):
        own = rows.get(exchange.rows)
        if isinstance(own, pl.DataFrame) and own.height and exchange.hashed:
            blocks += pack_rows(exchange, BlockKind.ROWS + index, to_table(own), KeySpace(1, 1), 0)
    return unpack_blocks(blocks, exchanges, 1, last=True).rows


def run(frame: pl.DataFrame, records: Sequence[ControlRecord], *, stage: bool) -> tuple[dict[str, float], set[object]]:
    """Return the CPU-seconds of each part, and rule and offset of each alert."""
    streams = (RuleStream(SCHEMA, "shop"),)
    rules = RulesFactory(streams, feature_stage=stage)
    exchanges = [*find_exchanges(streams, feature_stage=stage)]
    kernels = [rules.for_features()(), rules()] if stage else [rules()]
    logs = [(StateLog(StateSettings()), MemoryBlobs()) for _ in kernels]
    seconds, alerts = defaultdict[str, float](float), set[object]()
    before = latest = NO_WATERMARK
    for start in range(0, frame.height, CUT):
        cut = frame[start : start + CUT]
        latest = max(latest, int(cut[EVENT_MS].to_numpy().max()))
        after, rows = latest - DISORDER_MS, dict[StreamKey, pl.DataFrame]()
        for number, (kernel, (log, blobs)) in enumerate(zip(kernels, logs, strict=True)):
            is_last = number + 1 == len(kernels)
            routes = range(1) if is_last else range(1_001, 1_003)
            frames = {**{StreamKey("shop", route): cut for route in routes}, **rows}
            began = time.process_time()
            output = kernel.step(Cut(0, frames, () if start else records, after, before, after, {}))
            log.commit(blobs, kernel.tables(), {})
            seconds["rules" if is_last else "features"] += time.process_time() - began
            began = time.process_time()
            rows = {} if is_last else dict(shuffle(exchanges, output.rows))
            seconds["shuffle"] += time.process_time() - began
            found = [orjson.loads(one.value or b"") for one in output.records if one.lane == ALERTS]
            alerts |= {(alert["rule"], alert["source"]["offset"]) for alert in found}
        before = after
    return dict(seconds), alerts


def measure(features: Features, events: int) -> Result:
    """Return the figures of rules with these features. A short run before leaves imports and compilation out."""
    frame = generate(events)
    sums = pl.Series(count_before(frame, features))
    is_payment = frame["type"] == "payment"
    each = int(SHARE * events / RULES)  # events at which a rule fires
    bounds = sorted(sums.filter(is_payment), reverse=True)[each // 2 : each // 2 * 3 : max(1, each // RULES)][:RULES]
    records, stage = control(features, bounds), len({key for key, _ in features}) > 1
    run(frame[: 2 * CUT], records, stage=stage)
    seconds, alerts = run(frame, records, stage=stage)
    expected = {
        (f"r{n}", int(offset)) for n, bound in enumerate(bounds) for offset in (is_payment & (sums >= bound)).arg_true()
    }
    if alerts != expected:
        raise SystemExit(f"{len(alerts - expected)} alerts too many, {len(expected - alerts)} missing")
    parts = {f"{name}_cpu_seconds_per_million": round(s / events * 1e6, 2) for name, s in seconds.items()}
    total = round(sum(seconds.values()) / events * 1e6, 2)
    keys = ", ".join(dict.fromkeys(key for key, _ in features))
    head: Result = {"bench": "features of several keys", "keys": keys, "rules": len(bounds), "events": events}
    return {**head, "alerts": len(alerts), "equals_oracle": True, "cpu_seconds_per_million": total, **parts}


def main() -> None:
    """Measure rules with features of one key and of several in turns, and print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=400_000)
    events = parser.parse_args().events
    for _ in range(2):
        for features in (OF_USER, OF_SEVERAL):
            show(measure(features, events))


if __name__ == "__main__":
    main()
