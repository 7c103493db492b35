"""The headless Service that gives each driver pod a DNS name, under which executors and scrapers reach it."""

from __future__ import annotations

from headgate_operator.pods.image import BLOCKS_PORT, DRIVER_PORT, METRICS_PORT
from headgate_operator.pods.labels import Manifest, driver_selector, labels, owned_metadata
from headgate_operator.reconcile.observed import Desired


def headless_service(app: Desired) -> Manifest:
    """Return the Service of the app. It publishes pods that are not ready too."""
    ports = {"driver": DRIVER_PORT, "blocks": BLOCKS_PORT, "metrics": METRICS_PORT}
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": driver_selector(app.name),
        "ports": [{"name": name, "port": port} for name, port in ports.items()],
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owned_metadata(app, app.name, labels(app, "driver")),
        "spec": spec,
    }
