"""``python -m bench [WORKLOAD ...]``: prints one JSON object per workload on standard output, messages on stderr."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import orjson

from bench.command import console, explain, rule_check
from bench.harness import generated_rules as rules
from bench.harness import in_process, jobs
from bench.harness.environment import Environment, open_environment
from bench.harness.events import CONTEXT_FIELDS, FIELDS
from bench.harness.result import Figure, Result, show
from bench.kernels import features
from bench.sinks import postgres as postgres_sink
from bench.spark import copies, etl, latency, operators, propagation, recovery, release, sequences, startup, throughput
from headgate.console.messages import to_stderr

_WHOLE = "cpu_seconds_per_million"


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of the command. ``events`` and ``rules`` None: the workload's own default."""

    environment: Environment
    events: int | None
    rules: int | None
    quick: bool
    options: Mapping[str, object]

    def size(self, usual: int, quick: int) -> int:
        """Return the number of events: the option, else ``quick`` for a short run and ``usual`` for a full one."""
        return self.events or (quick if self.quick else usual)


def _per_event(request: Request) -> list[Result]:
    """Measure 100, 1,000 and 10,000 event rules, and the ratio of 10,000 to 100."""
    events = request.size(4_000_000, 400_000)
    if request.rules:
        return [throughput.measure_event_rules(request.environment, events, request.rules, request.options)]
    results = {
        n: throughput.measure_event_rules(request.environment, events, n, request.options) for n in (1_000, 100, 10_000)
    }
    ratios = {name: _ratio(results[10_000], results[100], name) for name in (_WHOLE, f"{_WHOLE}_steady")}
    return [results[100], results[10_000], results[1_000] | {"ratio_10000_to_100_rules": ratios}]


def _deduplicate(request: Request) -> list[Result]:
    """Measure 100 event rules on a stream with ``deduplicate`` and without, and the difference."""
    events, count = request.size(4_000_000, 400_000), request.rules or 100
    each, once = (
        throughput.measure_event_rules(request.environment, events, count, request.options, stream)
        for stream in (None, {"deduplicate": "24h"})
    )
    names = (_WHOLE, f"{_WHOLE}_steady")
    added = {name: _difference(once[name], each[name]) for name in names}
    return [each, once | {"workload": "deduplicate", "added_by_deduplicate": added}]


def _declared_fields(request: Request) -> list[Result]:
    """Measure 100 event rules on events of 2 KB: the stream declares the eleven fields that rules read, then all."""
    events, count = request.size(2_000_000, 200_000), request.rules or 100
    few, every = (
        throughput.measure_event_rules(
            request.environment, events, count, request.options, {"fields": {**FIELDS, **more}}, with_context=True
        )
        for more in ({}, CONTEXT_FIELDS)
    )
    sizes = (len(FIELDS), len(FIELDS) + len(CONTEXT_FIELDS))
    return [
        result | {"workload": "declared-fields", "fields": size}
        for size, result in zip(sizes, (few, every), strict=True)
    ]


def _difference(above: Figure, below: Figure) -> Figure:
    if isinstance(above, Mapping) and isinstance(below, Mapping):
        return {name: _difference(above[name], below[name]) for name in above}
    return round(above - below, 2) if isinstance(above, float) and isinstance(below, float) else None


def _ratio(above: Result, below: Result, name: str) -> float | None:
    figure, base = above[name], below[name]
    return round(figure / base, 2) if isinstance(figure, float) and isinstance(base, float) and base else None


def _windowed_rules(request: Request) -> list[Result]:
    return [
        throughput.measure_window_rules(
            request.environment, request.size(4_000_000, 400_000), request.rules or 100, request.options
        )
    ]


def _windowed_ratio(request: Request) -> list[Result]:
    """Measure 100 and then 1,000 windowed rules over twenty aggregates."""
    events = request.size(4_000_000, 300_000)
    of_100, of_1000 = (
        throughput.measure_window_rules(request.environment, events, count, request.options, rules.TWENTY)
        for count in (100, 1_000)
    )
    ratios = {name: _ratio(of_1000, of_100, name) for name in (_WHOLE, f"{_WHOLE}_steady")}
    return [of_100, of_1000 | {"ratio_1000_to_100_rules": ratios}]


def _sequences(request: Request) -> list[Result]:
    return [sequences.sequences(request.environment, request.size(2_000_000, 400_000), request.options)]


def _features(request: Request) -> list[Result]:
    """Measure 100 and then 1,000 rules over 100 features, in process."""
    counts = [request.rules] if request.rules else [100, 1_000]
    return features.measure_all(counts, request.size(1_000_000, 100_000))


def _copy(request: Request) -> list[Result]:
    return [copies.copy(request.environment, request.size(2_000_000, 400_000), json=False)]


def _copy_json(request: Request) -> list[Result]:
    return [copies.copy(request.environment, request.size(2_000_000, 400_000), json=True)]


def _etl(request: Request) -> list[Result]:
    """Measure the etl app and Spark's copy job, and their ratio."""
    return etl.compare_with_spark(request.environment, request.size(2_000_000, 400_000), request.options)


def _read_on_spark(request: Request) -> list[Result]:
    return _compare_on_spark(request, "read-on-spark", jobs.READ)


def _windows_on_spark(request: Request) -> list[Result]:
    """Measure tumbling windows, or sliding windows with ``--set slide_ms=900000``."""
    return _compare_on_spark(request, "windows-on-spark", jobs.WINDOWS)


def _sessions_on_spark(request: Request) -> list[Result]:
    return _compare_on_spark(request, "sessions-on-spark", jobs.SESSIONS)


def _analytics_on_spark(request: Request) -> list[Result]:
    return _compare_on_spark(request, "analytics-on-spark", jobs.ANALYTICS)


def _process_on_spark(request: Request) -> list[Result]:
    """Measure the keyed function. Spark runs it by rows or, with ``--set variant=pandas``, by its pandas interface."""
    return _compare_on_spark(request, "process-on-spark", jobs.PROCESS)


def _compare_on_spark(request: Request, workload: str, job: jobs.Job) -> list[Result]:
    return operators.compare_with_spark(
        request.environment, workload, job, request.size(2_000_000, 500_000), request.options
    )


def _windows_in_process(request: Request) -> list[Result]:
    return _measure_in_process(request, "windows-in-process", jobs.WINDOWS)


def _sessions_in_process(request: Request) -> list[Result]:
    return _measure_in_process(request, "sessions-in-process", jobs.SESSIONS)


def _process_in_process(request: Request) -> list[Result]:
    return _measure_in_process(request, "process-in-process", jobs.PROCESS)


def _measure_in_process(request: Request, workload: str, job: jobs.Job) -> list[Result]:
    return in_process.measure_in_process(workload, job, request.size(1_000_000, 200_000), request.options)


def _latency(request: Request) -> list[Result]:
    warm_up_s, measured_s = (15, 20) if request.quick else (30, 60)
    return [latency.latency(request.environment, 5_000, warm_up_s, measured_s, request.rules or 100, request.options)]


def _rule_latency(request: Request) -> list[Result]:
    idle, saturated = (5, 3) if request.quick else (40, 15)
    events = request.size(4_000_000, 2_000_000)
    return [
        propagation.measure_idle(request.environment, idle, 10 if request.quick else 30, request.options),
        propagation.measure_saturated(request.environment, saturated, events, request.options),
    ]


def _release(request: Request) -> list[Result]:
    """Measure three releases in a row."""
    releases, warm_up_s = (1, 15) if request.quick else (3, 40)
    return release.release(request.environment, request.rules or 1_000, releases, warm_up_s, request.options)


def _startup(request: Request) -> list[Result]:
    return startup.startup(request.environment, request.options)


def _recovery(request: Request) -> list[Result]:
    return recovery.recovery(request.environment, 2 if request.quick else 10, request.options)


def _check_rules(request: Request) -> list[Result]:
    return rule_check.rule_check(request.environment, request.rules or (100 if request.quick else 1_000))


def _explain(request: Request) -> list[Result]:
    return explain.explain(request.environment)


def _console(request: Request) -> list[Result]:
    """Measure the console with 5,000 rules and 1,000,000 alerts behind it."""
    rules = request.rules or (200 if request.quick else 5_000)
    return console.console(request.environment, rules, request.size(1_000_000, 20_000))


def _postgres_sink(request: Request) -> list[Result]:
    """Measure the PostgreSQL sink. It needs no broker, so ``python -m bench.sinks.postgres`` measures it alone."""
    folder = request.environment.run_folder(request.environment.new_name("postgres"))
    total, turns = (40_000, 1) if request.quick else (request.size(200_000, 40_000), 5)
    return [postgres_sink.postgres_sink(folder / "server", total, turns, request.environment.print_message)]


WORKLOADS: Mapping[str, Callable[[Request], list[Result]]] = {
    "per-event": _per_event,
    "windowed": _windowed_rules,
    "windowed-ratio": _windowed_ratio,
    "sequences": _sequences,
    "features": _features,
    "deduplicate": _deduplicate,
    "declared-fields": _declared_fields,
    "copy": _copy,
    "copy-json": _copy_json,
    "etl": _etl,
    "read-on-spark": _read_on_spark,
    "windows-on-spark": _windows_on_spark,
    "sessions-on-spark": _sessions_on_spark,
    "analytics-on-spark": _analytics_on_spark,
    "process-on-spark": _process_on_spark,
    "windows-in-process": _windows_in_process,
    "sessions-in-process": _sessions_in_process,
    "process-in-process": _process_in_process,
    "latency": _latency,
    "rule-latency": _rule_latency,
    "release": _release,
    "startup": _startup,
    "recovery": _recovery,
    "check-rules": _check_rules,
    "explain": _explain,
    "console": _console,
    "postgres-sink": _postgres_sink,
}


def main() -> int:
    """Run the workloads of the command line in their order."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("workload", nargs="*", help=f"any of {', '.join(WORKLOADS)}; without it, all")
    parser.add_argument("--events", type=int, help="events of the throughput workloads")
    parser.add_argument("--rules", type=int, help="number of rules, instead of the workload's own numbers")
    parser.add_argument(
        "--quick", action="store_true", help="short runs, to check that the benchmark works; the figures mean nothing"
    )
    parser.add_argument("--fresh", action="store_true", help="delete the benchmark's broker and events first")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the rules app (value: JSON or text)",
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.workload) - WORKLOADS.keys():
        parser.error(f"unknown workload {sorted(unknown)}; the workloads are {', '.join(WORKLOADS)}")
    environment = open_environment(to_stderr, fresh=arguments.fresh)
    options = dict(_setting(text) for text in arguments.set)
    request = Request(environment, arguments.events, arguments.rules, arguments.quick, options)
    for name in arguments.workload or WORKLOADS:
        to_stderr(f"bench: {name}")
        for result in WORKLOADS[name](request):
            show(result | ({"settings": orjson.dumps(options).decode()} if options else {}))
    return 0


def _setting(text: str) -> tuple[str, object]:
    name, _, value = text.partition("=")
    try:
        return name, orjson.loads(value)
    except orjson.JSONDecodeError:
        return name, value


if __name__ == "__main__":
    sys.exit(main())
