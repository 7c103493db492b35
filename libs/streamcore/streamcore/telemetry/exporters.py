"""Opens the exporters of metrics and traces: a port that Prometheus scrapes, and an OTLP endpoint over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NoOpTracer, Tracer

from streamcore.environment import EnvironmentVariable, Reader
from streamcore.errors import ConfigError

#: Time between two exports of metrics by OTLP.
_INTERVAL_MS = 15_000
#: Time for the last export of metrics when the exporters close.
_LAST_EXPORT_MS = 3_000
#: The variables with the login at the OTLP endpoint; the client reads them.
OTLP_LOGIN = (
    EnvironmentVariable(
        "OTEL_EXPORTER_OTLP_HEADERS",
        "Headers of requests to the OTLP endpoint, such as `authorization=...`, separated by commas.",
        *(Reader.SERVICE, Reader.OPERATOR),
        secret=True,
    ),
    EnvironmentVariable(
        "OTEL_EXPORTER_OTLP_CERTIFICATE",
        "PEM file of the certificate authority of the OTLP endpoint.",
        *(Reader.SERVICE, Reader.OPERATOR),
        default="the certificate authorities of the HTTP client",
    ),
)


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """Where to export. ``app``: the ``service.name`` of metrics and traces. None turns an exporter off.

    OpenTelemetry reads the credentials of the endpoint from the variables in ``OTLP_LOGIN``.
    """

    app: str
    prometheus_port: int | None = None
    otlp_endpoint: str | None = None
    version: str = ""


@dataclass(slots=True)
class Exporting:
    """The open exporters. ``close_calls``: what ``close`` calls, in order."""

    meters: MeterProvider
    tracer: Tracer
    close_calls: list[Callable[[], object]]

    def close(self) -> None:
        """Export the last metrics and spans, within some seconds, and close the threads and the port."""
        for close_call in self.close_calls:
            close_call()


def export(settings: TelemetrySettings) -> Exporting:
    """Open the exporters of the settings; ``ConfigError`` if the port is in use."""
    resource = Resource.create({"service.name": settings.app, "service.version": settings.version})
    readers: list[MetricReader] = []
    close_calls: list[Callable[[], object]] = []
    if settings.prometheus_port is not None:
        readers.append(_prometheus(settings.prometheus_port, close_calls))
    tracer: Tracer = NoOpTracer()
    if settings.otlp_endpoint is not None:
        readers.append(_periodic(settings.otlp_endpoint))
        tracer = _tracer(settings.otlp_endpoint, resource, close_calls)
    meters = MeterProvider(readers, resource)
    close_calls.append(lambda: meters.shutdown(_LAST_EXPORT_MS))
    return Exporting(meters, tracer, close_calls)


def _prometheus(port: int, close_calls: list[Callable[[], object]]) -> MetricReader:
    from opentelemetry.exporter.prometheus import PrometheusMetricReader
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port)
    except OSError as error:
        raise ConfigError(f"telemetry.prometheus_port {port}: {error.strerror}; choose another port") from error

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    close_calls.append(close)
    return PrometheusMetricReader(scope_info_enabled=False)


def _periodic(endpoint: str) -> MetricReader:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    exporter = OTLPMetricExporter(endpoint=f"{endpoint.rstrip('/')}/v1/metrics")
    return PeriodicExportingMetricReader(exporter, _INTERVAL_MS)


def _tracer(endpoint: str, resource: Resource, close_calls: list[Callable[[], object]]) -> Tracer:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    traces = TracerProvider(resource=resource)
    traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")))
    close_calls.append(traces.shutdown)
    return traces.get_tracer("headgate")
