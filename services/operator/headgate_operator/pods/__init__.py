"""Manifests, as pure functions of an app and a release. All knowledge of the image is in this package.

``docs/kubernetes.md`` ("What a driver pod needs") is the counterpart of this package.
"""

from headgate_operator.pods.access import access_manifests, service_account
from headgate_operator.pods.collector import collector_pod
from headgate_operator.pods.driver import driver_pod
from headgate_operator.pods.files import files_map
from headgate_operator.pods.labels import APP, COLLECTS, REVISION, driver_selector
from headgate_operator.pods.network import headless_service
from headgate_operator.pods.secret import spark_secret
from headgate_operator.pods.settings import settings_map

__all__ = [
    "APP",
    "COLLECTS",
    "REVISION",
    "access_manifests",
    "collector_pod",
    "driver_pod",
    "driver_selector",
    "files_map",
    "headless_service",
    "service_account",
    "settings_map",
    "spark_secret",
]
