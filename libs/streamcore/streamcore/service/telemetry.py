"""What a service says of itself to the outside, in its settings. Loads none of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from streamcore.service.base import Document

Port = Annotated[int, Field(ge=1, le=65_535)]


class TelemetryDocument(Document):
    """``prometheus_port``: metrics are served there, to everybody who reaches it. ``otlp_endpoint``: metrics and traces
    are sent there (OTLP over HTTP, ``http://host:4318``); headers and certificates come from the variables that
    OpenTelemetry reads. ``logs``: ``json`` one object a line, ``plain`` for people, ``auto`` plain on a terminal."""

    prometheus_port: Port | None = None
    otlp_endpoint: str | None = None
    logs: Literal["auto", "json", "plain"] = "auto"

    @property
    def is_on(self) -> bool:
        """Is anybody to be told?"""
        return self.prometheus_port is not None or self.otlp_endpoint is not None
