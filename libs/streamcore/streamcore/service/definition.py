"""Definition of a service: the few facts by which a service differs from every other.

From a ``ServiceDefinition`` follow the process (``python -m``), the reading of settings, the topics, and the app that
savepoint commands compare. Promises: making a definition and reading settings import neither Spark nor the app; the
app's module is imported when an app is built. Does not know what the app computes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from streamcore.service.config.documents import load_document
from streamcore.service.config.settings import ServiceSettings

if TYPE_CHECKING:
    from streamcore.app import App
    from streamcore.kafka.topics import TopicSpec
    from streamcore.service.lifecycle import RunnerFactory
    from streamcore.service.savepoint_api import Savepoints
    from streamcore.spark.runtime import Runtime

S = TypeVar("S", bound=ServiceSettings)


@dataclass(frozen=True, slots=True)
class ServiceDefinition(Generic[S]):
    """One service.

    ``name``: prefix of its messages, such as ``headgate-rules``. ``settings``: the model of its settings document.
    ``app_module``: the module with ``build_app(settings)`` and ``create_runner(settings, runtime, listeners)``, by
    name because it imports Spark. ``lanes``: returns the lanes whose topics the app writes.
    """

    name: str
    settings: type[S]
    app_module: str
    lanes: Callable[[S], Sequence[str]]

    def load_settings(self, path: Path) -> S:
        """Read a YAML or JSON file; ``ConfigError`` lists every entry that is wrong."""
        return load_document(path, self.settings)

    def topics(self, settings: S) -> list[TopicSpec]:
        """Return the topics that the app writes, and its control topic."""
        from streamcore.service.topics import topics_of_service

        return topics_of_service(settings, self.lanes(settings))

    def build_app(self, settings: S) -> App:
        """Build the app. ``StreamError`` if the settings cannot run."""
        build = cast("Callable[[S], App]", self._load("build_app"))
        return build(settings)

    def run(self) -> int:
        """Run the process with the arguments of the command line; return its exit code."""
        from streamcore.service.main import run_service

        return run_service(self.name, self.settings, self._runner_factory, self._savepoints)

    def _runner_factory(self) -> RunnerFactory[S]:
        return cast("RunnerFactory[S]", self._load("create_runner"))

    def _savepoints(self, settings: S, runtime: Runtime) -> Savepoints:
        from streamcore.service.spark_savepoints import ServiceSavepoints

        return ServiceSavepoints(settings, self.build_app(settings), runtime)

    def _load(self, attribute: str) -> object:
        return getattr(importlib.import_module(self.app_module), attribute)
