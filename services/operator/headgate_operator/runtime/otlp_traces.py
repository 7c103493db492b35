"""Sends traces of upgrades by OTLP over HTTP to the endpoint in OpenTelemetry's variables; without one it loads no
library.

No caller waits: a finished upgrade goes into a short queue, and a thread sends it; when the queue is full or the
endpoint is away, the upgrade is dropped and counted. An upgrade is sent once, after its end was written; an operator
that is killed in that moment sends nothing.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from headgate_operator.resources.status import Upgrade
from headgate_operator.runtime.metrics import Counters
from headgate_operator.traces import AppRef, Span, trace_spans

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

_LOG = logging.getLogger(__name__)
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_QUEUED = 100
_LAST_S = 3.0
_MS_NS = 1_000_000


class Traces(Protocol):
    """The receiver of finished upgrades."""

    def upgrade_ended(self, app: AppRef, upgrade: Upgrade) -> None:
        """Send a finished upgrade whose end is in the written status. Returns at once, and raises nothing."""

    def close(self) -> None:
        """Send the rest of the queue, within some seconds."""


class NoTraces:
    """Traces without a receiver."""

    def upgrade_ended(self, app: AppRef, upgrade: Upgrade) -> None:
        """See ``Traces``."""

    def close(self) -> None:
        """See ``Traces``."""


NOBODY: Traces = NoTraces()


def traces(environment: Mapping[str, str], counters: Counters) -> Traces:
    """Return the traces that the environment configures."""
    return OtlpTraces(counters) if any(environment.get(name) for name in _ENDPOINTS) else NOBODY


class OtlpTraces:
    """Traces over HTTP, one trace a request. Counts ``traces``: ``sent`` and ``dropped``."""

    def __init__(self, counters: Counters, queued: int = _QUEUED) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource

        self._counters = counters
        self._exporter: SpanExporter = OTLPSpanExporter()
        self._resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME") or "headgate-operator"})
        self._waiting: queue.Queue[tuple[AppRef, Upgrade] | None] = queue.Queue(queued)
        self._thread = threading.Thread(target=self._work, name="traces", daemon=True)
        self._thread.start()

    def upgrade_ended(self, app: AppRef, upgrade: Upgrade) -> None:
        """See ``Traces``."""
        try:
            self._waiting.put_nowait((app, upgrade))
        except queue.Full:
            self._counters.add("traces", "dropped")

    def close(self) -> None:
        """See ``Traces``."""
        try:
            self._waiting.put(None, timeout=_LAST_S)
        except queue.Full:
            _LOG.warning("%d traces were not sent", self._waiting.qsize())
        self._thread.join(_LAST_S)
        self._exporter.shutdown()
        self._thread.join(_LAST_S)

    def _work(self) -> None:
        while (one := self._waiting.get()) is not None:
            self._counters.add("traces", "sent" if self._send(trace_spans(*one)) else "dropped")

    def _send(self, spans: Sequence[Span]) -> bool:
        from opentelemetry.sdk.trace.export import SpanExportResult

        try:
            return self._exporter.export(_readable(spans, self._resource)) is SpanExportResult.SUCCESS
        except Exception:  # whatever it is, it costs a trace and not the ones after it
            _LOG.exception("trace of an upgrade")
            return False


def _readable(spans: Sequence[Span], resource: Resource) -> list[ReadableSpan]:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

    def context(span: Span, span_id: int) -> SpanContext:
        return SpanContext(span.trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    return [
        ReadableSpan(
            span.name,
            context(span, span.span_id),
            parent=context(span, span.parent_id) if span.parent_id else None,
            resource=resource,
            attributes=span.attributes,
            kind=SpanKind.INTERNAL,
            instrumentation_scope=InstrumentationScope("headgate"),
            status=Status(StatusCode.ERROR if span.failed else StatusCode.UNSET),
            start_time=span.start_ms * _MS_NS,
            end_time=span.end_ms * _MS_NS,
        )
        for span in spans
    ]
