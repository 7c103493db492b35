"""Where metrics and traces go: a port that Prometheus scrapes, and an endpoint that takes OTLP over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NoOpTracer, Tracer

from streamcore.errors import ConfigError

_INTERVAL_MS = 15_000
_LAST_MS = 3_000


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """``app`` is the service's name everywhere. Credentials of an endpoint come from OpenTelemetry's own variables."""

    app: str
    prometheus_port: int | None = None
    otlp_endpoint: str | None = None
    version: str = ""


@dataclass(slots=True)
class Exporting:
    """The open exporters. ``close`` sends the rest, within some seconds."""

    meters: MeterProvider
    tracer: Tracer
    ends: list[Callable[[], object]]

    def close(self) -> None:
        """End threads and the port."""
        for end in self.ends:
            end()


def export(settings: TelemetrySettings) -> Exporting:
    """Open it. ``ConfigError`` when the port is taken."""
    resource = Resource.create({"service.name": settings.app, "service.version": settings.version})
    readers: list[MetricReader] = []
    ends: list[Callable[[], object]] = []
    if settings.prometheus_port is not None:
        readers.append(_prometheus(settings.prometheus_port, ends))
    tracer: Tracer = NoOpTracer()
    if settings.otlp_endpoint is not None:
        readers.append(_periodic(settings.otlp_endpoint))
        tracer = _tracer(settings.otlp_endpoint, resource, ends)
    meters = MeterProvider(readers, resource)
    ends.append(lambda: meters.shutdown(_LAST_MS))
    return Exporting(meters, tracer, ends)


def _prometheus(port: int, ends: list[Callable[[], object]]) -> MetricReader:
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port)
    except OSError as error:
        raise ConfigError(f"telemetry.prometheus_port {port}: {error.strerror}; choose another port") from error

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    ends.append(end)
    return PrometheusMetricReader(scope_info_enabled=False)


def _periodic(endpoint: str) -> MetricReader:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    exporter = OTLPMetricExporter(endpoint=f"{endpoint.rstrip('/')}/v1/metrics")
    return PeriodicExportingMetricReader(exporter, _INTERVAL_MS)


def _tracer(endpoint: str, resource: Resource, ends: list[Callable[[], object]]) -> Tracer:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    traces = TracerProvider(resource=resource)
    traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")))
    ends.append(traces.shutdown)
    return traces.get_tracer("headgate")
