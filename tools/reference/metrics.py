"""The page of the metrics, from ``streamcore.telemetry.definitions`` and the operator's health server."""

from __future__ import annotations

from prometheus_client.core import CounterMetricFamily

from headgate_operator.runtime import health_server
from streamcore.telemetry import definitions
from tools.reference.markdown import code, head, section, table

_COLUMNS = ("name", "kind", "unit", "labels", "description")
_UNITS = {"s": "seconds", "By": "bytes", "": ""}


def page() -> str:
    """Return the page."""
    lines = head(
        "Metrics",
        "The names are those of a scrape by Prometheus. [Kubernetes](../kubernetes.md#metrics-traces-and-logs) "
        "describes the ports and what to watch, and [installation](../install.md) the alerts and the dashboard.",
    )
    lines += section(
        "Services",
        "A service serves them on the port `telemetry.prometheus_port` at `/metrics`, and sends them to "
        "`telemetry.otlp_endpoint` by OTLP. OTLP has the same names with dots and without unit and `_total`, such as "
        "`headgate.lag.time`.",
    )
    lines += table(_COLUMNS, map(_of_service, definitions.METRICS))
    lines += section("Operator", "The operator serves them on the port `--port` at `/metrics`.")
    lines += table(_COLUMNS, map(_of_operator, health_server.METRICS))
    return "\n".join(lines)


def _of_service(metric: definitions.MetricDefinition) -> tuple[str, ...]:
    return (
        code(metric.prometheus_name),
        metric.kind.value,
        _UNITS[metric.unit],
        _labels(metric.labels),
        metric.description,
    )


def _of_operator(metric: health_server.MetricDefinition) -> tuple[str, ...]:
    counts = metric.family is CounterMetricFamily
    name, kind = (f"{metric.name}_total", "counter") if counts else (metric.name, "gauge")
    unit = "seconds" if metric.name.endswith("_seconds") else ""
    return (code(name), kind, unit, _labels(metric.labels), metric.description)


def _labels(labels: tuple[str, ...]) -> str:
    return ", ".join(map(code, labels))
