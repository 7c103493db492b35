"""Metrics and traces of a running app, by OpenTelemetry: what a cut reports, as instruments and spans.

A package of its own because it takes half a second and 20 MB to load, which nobody pays whose settings name no port and
no endpoint: services import it then. Promises that a cut waits for nobody: what it says is added to numbers in
memory, and threads of the exporters read them; an endpoint that is away costs spans, never a cut. Refuses to know Spark
and Kafka: it hears what a runner reports.
"""

from streamcore.telemetry.exporting import TelemetrySettings
from streamcore.telemetry.telemetry import Telemetry

__all__ = ["Telemetry", "TelemetrySettings"]
