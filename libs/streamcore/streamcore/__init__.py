"""The stream engine: stream programs over Kafka topics, exactly once, on Spark or in this process.

This package is the door. A stream program needs one import line::

    import streamcore as sc

    orders = sc.source(ORDERS, sc.bounded_out_of_orderness("5s"))
    revenue = orders.key_by("shop").window(sc.Tumbling("1m")).aggregate(revenue=sc.Sum("amount"))
    topology = sc.Topology("revenue", revenue.sink("revenue", key="shop"))

    sc.simulate(topology, {"orders": sc.event_table(ORDERS, ROWS)})  # in this process, without a broker
    sc.run_app(topology.app(), settings)  # on Kafka and Spark

Public are the names in ``__all__``, and they are imported from here only. All modules and subpackages are private:
they may change at any time, and only the packages of this repository import them. The names are loaded when they are
used, because every worker imports this package: ``import streamcore`` loads neither Polars, Arrow, NumPy nor Spark.
The engine knows no service and no rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamcore.lazy_names import lazy_names

if TYPE_CHECKING:
    from streamcore.aggregates import (
        Accumulator,
        Aggregate,
        ApproxDistinct,
        Collect,
        Count,
        CountDistinct,
        Custom,
        First,
        Funnel,
        Last,
        Max,
        Mean,
        Min,
        Quantiles,
        RowAccumulator,
        StdDev,
        Sum,
        Ties,
        TopN,
        Variance,
    )
    from streamcore.app import App, EventTime
    from streamcore.decode.formats import (
        AccessLog,
        Avro,
        Bare,
        Confluent,
        Container,
        Csv,
        Json,
        Logfmt,
        SingleObject,
        Syslog,
        TextPattern,
    )
    from streamcore.decode.text.access_log import LogLayout
    from streamcore.durations import Duration
    from streamcore.engine.report import CutReport, Listeners
    from streamcore.enrich import (
        Answer,
        BatchLookupClient,
        Caching,
        Enrichment,
        Key,
        LookupClient,
        LookupRetries,
        OnFailure,
        ResultOrder,
    )
    from streamcore.errors import ConfigError, CorruptState, Drained, Fenced, Permanent, Retryable, StreamError
    from streamcore.kafka.settings import KafkaSettings, SaslMechanism, SecurityProtocol
    from streamcore.keyed import (
        AggregatingState,
        BroadcastState,
        CoProcessFunction,
        KeyedLimits,
        ListState,
        MapState,
        Migration,
        ProcessContext,
        ProcessFunction,
        ReducingState,
        Refresh,
        TimeDomain,
        Ttl,
        ValueState,
        ValueTypeMismatch,
        WhenFull,
    )
    from streamcore.keyed.runtime_context import FunctionCounter, FunctionGauge, RuntimeContext
    from streamcore.keyed.window_states import per_window
    from streamcore.limits import Limits, PatternLimits, StateSettings
    from streamcore.operators.base import MAIN
    from streamcore.operators.group_calls import GroupContext
    from streamcore.operators.joins.process_cogroup import ProcessCoGroupFunction
    from streamcore.operators.rolling.totals import RollingSpan
    from streamcore.operators.windows.general.pane_values import WindowView
    from streamcore.operators.windows.process_operator import ProcessWindowFunction
    from streamcore.patterns.expressions import MatchedStep, MatchExpression, candidate, matched
    from streamcore.patterns.pattern import (
        AfterMatchSkip,
        Pattern,
        WithinType,
        no_skip,
        skip_past_last_event,
        skip_to_first,
        skip_to_last,
        skip_to_next,
    )
    from streamcore.savepoint.division import divide_state
    from streamcore.schema import StreamSchema
    from streamcore.service.program.settings import ProgramSettings, ProgramStream
    from streamcore.sinks.delta.settings import DeltaSettings, DeltaStorage, DeltaTableSpec
    from streamcore.sinks.delta.sink import DeltaSink
    from streamcore.sinks.iceberg.settings import IcebergCatalog, IcebergSettings, IcebergTableSpec
    from streamcore.sinks.iceberg.sink import IcebergSink
    from streamcore.sinks.opensearch.settings import IndexSpec, OpenSearchSettings
    from streamcore.sinks.opensearch.sink import OpenSearchSink
    from streamcore.sinks.parquet.settings import ParquetFolderSpec, ParquetSettings
    from streamcore.sinks.parquet.sink import ParquetSink
    from streamcore.sinks.postgres.settings import PostgresSettings, TableName, TableSpec
    from streamcore.sinks.postgres.sink import PostgresSink
    from streamcore.sinks.sink import RetryPolicy, Sink, SinkFactory, SinkHooks
    from streamcore.sinks.webhook.settings import WebhookSettings, WebhookSpec
    from streamcore.sinks.webhook.sink import WebhookSink
    from streamcore.spark.launch import run_app
    from streamcore.spark.runner import RestartPolicy, RunSettings
    from streamcore.spark.session import SparkSettings
    from streamcore.topology.joined_stream import JoinedStream
    from streamcore.topology.patterns.pattern_stream import PatternStream
    from streamcore.topology.simulation import Simulation, SimulationResult, simulate
    from streamcore.topology.stream import KeyedStream, Stream, control_stream, source
    from streamcore.topology.text_tables import event_table
    from streamcore.topology.topology import Topology
    from streamcore.topology.windowed_stream import WindowedStream
    from streamcore.watermark import WatermarkStrategy, ascending_timestamps, bounded_out_of_orderness, from_punctuation
    from streamcore.windowing import (
        Accumulation,
        AfterCount,
        AfterProcessingTime,
        AfterWatermark,
        AllOf,
        AnyOf,
        Assigner,
        AtEndOfStream,
        CalendarDay,
        CountSliding,
        CountTumbling,
        Earliest,
        Element,
        Evictor,
        GlobalWindow,
        InSequence,
        KeepCount,
        KeepNear,
        KeepRecent,
        Never,
        OnPunctuation,
        OrFinally,
        Purging,
        Repeatedly,
        RevisionPolicy,
        Session,
        Sliding,
        Timing,
        Trigger,
        TriggerContext,
        TriggerState,
        Tumbling,
        Window,
    )

#: The modules that define the public names, loaded when a name is first used.
_MODULES = {
    "streamcore.aggregates": (
        "Accumulator Aggregate ApproxDistinct Collect Count CountDistinct Custom First Funnel Last Max Mean Min "
        "Quantiles RowAccumulator StdDev Sum Ties TopN Variance"
    ),
    "streamcore.app": "App EventTime",
    "streamcore.decode.formats": (
        "AccessLog Avro Bare Confluent Container Csv Json Logfmt SingleObject Syslog TextPattern"
    ),
    "streamcore.decode.text.access_log": "LogLayout",
    "streamcore.durations": "Duration",
    "streamcore.engine.report": "CutReport Listeners",
    "streamcore.enrich": (
        "Answer BatchLookupClient Caching Enrichment Key LookupClient LookupRetries OnFailure ResultOrder"
    ),
    "streamcore.errors": "ConfigError CorruptState Drained Fenced Permanent Retryable StreamError",
    "streamcore.kafka.settings": "KafkaSettings SaslMechanism SecurityProtocol",
    "streamcore.keyed": (
        "AggregatingState BroadcastState CoProcessFunction KeyedLimits ListState MapState Migration ProcessContext "
        "ProcessFunction ReducingState Refresh TimeDomain Ttl ValueState ValueTypeMismatch WhenFull"
    ),
    "streamcore.keyed.window_states": "per_window",
    "streamcore.limits": "Limits PatternLimits StateSettings",
    "streamcore.operators.base": "MAIN",
    "streamcore.keyed.runtime_context": "FunctionCounter FunctionGauge RuntimeContext",
    "streamcore.operators.group_calls": "GroupContext",
    "streamcore.operators.joins.process_cogroup": "ProcessCoGroupFunction",
    "streamcore.operators.rolling.totals": "RollingSpan",
    "streamcore.operators.windows.general.pane_values": "WindowView",
    "streamcore.operators.windows.process_operator": "ProcessWindowFunction",
    "streamcore.patterns.expressions": "MatchExpression MatchedStep candidate matched",
    "streamcore.patterns.pattern": (
        "AfterMatchSkip Pattern WithinType no_skip skip_past_last_event skip_to_first skip_to_last skip_to_next"
    ),
    "streamcore.schema": "StreamSchema",
    "streamcore.savepoint.division": "divide_state",
    "streamcore.service.program.settings": "ProgramSettings ProgramStream",
    "streamcore.sinks.delta.settings": "DeltaSettings DeltaStorage DeltaTableSpec",
    "streamcore.sinks.delta.sink": "DeltaSink",
    "streamcore.sinks.iceberg.settings": "IcebergCatalog IcebergSettings IcebergTableSpec",
    "streamcore.sinks.iceberg.sink": "IcebergSink",
    "streamcore.sinks.opensearch.settings": "IndexSpec OpenSearchSettings",
    "streamcore.sinks.opensearch.sink": "OpenSearchSink",
    "streamcore.sinks.parquet.settings": "ParquetFolderSpec ParquetSettings",
    "streamcore.sinks.parquet.sink": "ParquetSink",
    "streamcore.sinks.postgres.settings": "PostgresSettings TableName TableSpec",
    "streamcore.sinks.postgres.sink": "PostgresSink",
    "streamcore.sinks.sink": "RetryPolicy Sink SinkFactory SinkHooks",
    "streamcore.sinks.webhook.settings": "WebhookSettings WebhookSpec",
    "streamcore.sinks.webhook.sink": "WebhookSink",
    "streamcore.spark.launch": "run_app",
    "streamcore.spark.runner": "RestartPolicy RunSettings",
    "streamcore.spark.session": "SparkSettings",
    "streamcore.topology.joined_stream": "JoinedStream",
    "streamcore.topology.patterns.pattern_stream": "PatternStream",
    "streamcore.topology.simulation": "Simulation SimulationResult simulate",
    "streamcore.topology.stream": "KeyedStream Stream control_stream source",
    "streamcore.topology.text_tables": "event_table",
    "streamcore.topology.topology": "Topology",
    "streamcore.topology.windowed_stream": "WindowedStream",
    "streamcore.watermark": "WatermarkStrategy ascending_timestamps bounded_out_of_orderness from_punctuation",
    "streamcore.windowing": (
        "Accumulation AfterCount AfterProcessingTime AfterWatermark AllOf AnyOf Assigner AtEndOfStream "
        "CalendarDay CountSliding CountTumbling Earliest Element Evictor GlobalWindow InSequence KeepCount "
        "KeepNear KeepRecent Never OnPunctuation OrFinally Purging Repeatedly RevisionPolicy Session Sliding "
        "Timing Trigger TriggerContext TriggerState Tumbling Window"
    ),
}

__all__ = [
    "MAIN",
    "AccessLog",
    "Accumulation",
    "Accumulator",
    "AfterCount",
    "AfterMatchSkip",
    "AfterProcessingTime",
    "AfterWatermark",
    "Aggregate",
    "AggregatingState",
    "AllOf",
    "Answer",
    "AnyOf",
    "App",
    "ApproxDistinct",
    "Assigner",
    "AtEndOfStream",
    "Avro",
    "Bare",
    "BatchLookupClient",
    "BroadcastState",
    "Caching",
    "CalendarDay",
    "CoProcessFunction",
    "Collect",
    "ConfigError",
    "Confluent",
    "Container",
    "CorruptState",
    "Count",
    "CountDistinct",
    "CountSliding",
    "CountTumbling",
    "Csv",
    "Custom",
    "CutReport",
    "DeltaSettings",
    "DeltaSink",
    "DeltaStorage",
    "DeltaTableSpec",
    "Drained",
    "Duration",
    "Earliest",
    "Element",
    "Enrichment",
    "EventTime",
    "Evictor",
    "Fenced",
    "First",
    "FunctionCounter",
    "FunctionGauge",
    "Funnel",
    "GlobalWindow",
    "GroupContext",
    "IcebergCatalog",
    "IcebergSettings",
    "IcebergSink",
    "IcebergTableSpec",
    "InSequence",
    "IndexSpec",
    "JoinedStream",
    "Json",
    "KafkaSettings",
    "KeepCount",
    "KeepNear",
    "KeepRecent",
    "Key",
    "KeyedLimits",
    "KeyedStream",
    "Last",
    "Limits",
    "ListState",
    "Listeners",
    "LogLayout",
    "Logfmt",
    "LookupClient",
    "LookupRetries",
    "MapState",
    "MatchExpression",
    "MatchedStep",
    "Max",
    "Mean",
    "Migration",
    "Min",
    "Never",
    "OnFailure",
    "OnPunctuation",
    "OpenSearchSettings",
    "OpenSearchSink",
    "OrFinally",
    "ParquetFolderSpec",
    "ParquetSettings",
    "ParquetSink",
    "Pattern",
    "PatternLimits",
    "PatternStream",
    "Permanent",
    "PostgresSettings",
    "PostgresSink",
    "ProcessCoGroupFunction",
    "ProcessContext",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ProgramSettings",
    "ProgramStream",
    "Purging",
    "Quantiles",
    "ReducingState",
    "Refresh",
    "Repeatedly",
    "RestartPolicy",
    "ResultOrder",
    "RetryPolicy",
    "Retryable",
    "RevisionPolicy",
    "RollingSpan",
    "RowAccumulator",
    "RunSettings",
    "RuntimeContext",
    "SaslMechanism",
    "SecurityProtocol",
    "Session",
    "Simulation",
    "SimulationResult",
    "SingleObject",
    "Sink",
    "SinkFactory",
    "SinkHooks",
    "Sliding",
    "SparkSettings",
    "StateSettings",
    "StdDev",
    "Stream",
    "StreamError",
    "StreamSchema",
    "Sum",
    "Syslog",
    "TableName",
    "TableSpec",
    "TextPattern",
    "Ties",
    "TimeDomain",
    "Timing",
    "TopN",
    "Topology",
    "Trigger",
    "TriggerContext",
    "TriggerState",
    "Ttl",
    "Tumbling",
    "ValueState",
    "ValueTypeMismatch",
    "Variance",
    "WatermarkStrategy",
    "WebhookSettings",
    "WebhookSink",
    "WebhookSpec",
    "WhenFull",
    "Window",
    "WindowView",
    "WindowedStream",
    "WithinType",
    "ascending_timestamps",
    "bounded_out_of_orderness",
    "candidate",
    "control_stream",
    "divide_state",
    "event_table",
    "from_punctuation",
    "matched",
    "no_skip",
    "per_window",
    "run_app",
    "simulate",
    "skip_past_last_event",
    "skip_to_first",
    "skip_to_last",
    "skip_to_next",
    "source",
]

_MODULE_BY_NAME, _get_attribute, _list_names = lazy_names(__name__, _MODULES)
if not TYPE_CHECKING:  # for a type checker, the imports above are all that there is
    __getattr__, __dir__ = _get_attribute, _list_names
