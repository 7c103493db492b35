"""Metrics and traces of a running app, by OpenTelemetry: reports of cuts, as instruments and spans.

A package of its own because it takes half a second and 20 MB to load, which a service whose settings name no port and
no endpoint does not pay: services import it on demand. Promises that a cut never waits: its report is added to numbers
in memory, and threads of the exporters read them; an endpoint that is away costs spans, never a cut. Does not know
Spark and Kafka: it receives the reports of a runner.
"""

from streamcore.telemetry.exporters import TelemetrySettings
from streamcore.telemetry.instruments import Telemetry

__all__ = ["Telemetry", "TelemetrySettings"]
