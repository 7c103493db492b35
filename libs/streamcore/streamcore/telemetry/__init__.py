"""Exports metrics and traces of a running app by OpenTelemetry, from the reports of its cuts.

The package takes half a second and 20 MB to load, so a service imports it only if its settings have a port or an
endpoint. A cut never waits for an exporter: its report is added to totals in memory, which the threads of the exporters
read. If an endpoint cannot be reached, spans are lost and cuts go on. The package depends on neither Spark nor Kafka.
"""

from streamcore.telemetry.exporters import TelemetrySettings
from streamcore.telemetry.instruments import Telemetry

__all__ = ["Telemetry", "TelemetrySettings"]
