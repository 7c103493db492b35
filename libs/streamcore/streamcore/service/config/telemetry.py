"""Settings of metrics, traces and logs. Imports no exporter."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from streamcore.service.config.base import Document

Port = Annotated[int, Field(ge=1, le=65_535)]


class TelemetryDocument(Document):
    """Metrics, traces and logs of a service."""

    prometheus_port: Annotated[
        Port | None,
        Field(description="Port that serves metrics to anybody who can reach it; without it they are not served."),
    ] = None
    otlp_endpoint: Annotated[
        str | None,
        Field(
            description="Endpoint for metrics and traces by OTLP over HTTP, such as http://host:4318; headers and "
            "certificates come from the environment variables of OpenTelemetry."
        ),
    ] = None
    logs: Annotated[
        Literal["auto", "json", "plain"],
        Field(
            description="Format of log messages: json for one object a line, also of each cut with rows; plain for "
            "people; auto for plain."
        ),
    ] = "auto"

    @property
    def is_on(self) -> bool:
        """Whether metrics or traces are exported."""
        return self.prometheus_port is not None or self.otlp_endpoint is not None

    @property
    def pages(self) -> str:
        """Where a person finds the metrics."""
        if self.prometheus_port is not None:
            return f"metrics: http://localhost:{self.prometheus_port}/metrics"
        if self.otlp_endpoint is not None:
            return f"metrics: sent to {self.otlp_endpoint}"
        return "metrics: none, until the setting telemetry.prometheus_port is there"
