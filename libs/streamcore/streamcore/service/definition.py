"""Definition of a service: the few facts by which a service differs from every other.

From a ``ServiceDefinition`` follow the process (``python -m``), the reading of settings, the topics, and the app that
savepoint commands compare. The services of this repository and the programs of users (``streamcore.service.program``)
have one each. Promises: making the definition of a service and reading settings import neither Spark nor the app; the
app's module is imported when an app is built. Does not know what the app computes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from streamcore.service.config.documents import checked_document, read_settings
from streamcore.service.config.settings import ServiceSettings

if TYPE_CHECKING:
    from streamcore.app import App, Source
    from streamcore.engine.report import Listeners
    from streamcore.kafka.topics import TopicSpec
    from streamcore.service.config.faults import DocumentFault
    from streamcore.service.savepoint_api import Savepoints
    from streamcore.spark.runner import Runner
    from streamcore.spark.runtime import Runtime

S = TypeVar("S", bound=ServiceSettings)
S_contra = TypeVar("S_contra", bound=ServiceSettings, contravariant=True)


class AppFactory(Protocol[S_contra]):
    """Builds the app of a service. A module with these two functions is one."""

    def build_app(self, settings: S_contra, /) -> App:
        """Build the app, without sinks or runtime. ``StreamError`` if the settings cannot run."""
        ...

    def create_runner(self, settings: S_contra, runtime: Runtime, listeners: Listeners, /) -> Runner:
        """Create the runner of the app and its sinks."""
        ...


def in_module(name: str) -> Callable[[], AppFactory[Any]]:
    """Return a function that imports a module, which is an ``AppFactory``: it imports Spark, so it is named only."""
    return lambda: cast("AppFactory[Any]", importlib.import_module(name))


@dataclass(frozen=True, slots=True)
class ServiceDefinition(Generic[S]):
    """One service.

    ``name``: prefix of its messages, such as ``headgate-rules``. ``settings``: the model of its settings document.
    ``factory``: returns what builds the app, and imports Spark. ``lanes``: returns the lanes whose topics the app
    writes. ``defaults``: entries that a settings document may leave out although the model requires them.
    ``form``: the model of the form of the document alone, if ``settings`` checks more than the form; ``find_faults``
    finds the rest of what is wrong in a document of that form, with the sources of its inputs where their files can be
    read, and with the fields that are wrong in these files.
    """

    name: str
    settings: type[S]
    factory: Callable[[], AppFactory[S]]
    lanes: Callable[[S], Sequence[str]]
    defaults: Mapping[str, object] = field(default_factory=dict)
    form: type[ServiceSettings] | None = None
    find_faults: Callable[[Any, Sequence[Source | None], Collection[str]], Sequence[DocumentFault]] | None = None

    def load_settings(self, path: Path) -> S:
        """Read a YAML or JSON file; ``ConfigError`` lists every entry that is wrong."""
        return self.check_settings(read_settings(path), str(path))

    def check_settings(self, document: Mapping[str, object], where: str) -> S:
        """Validate a settings document that was read already. ``where``: its source, for the ``ConfigError``."""
        return checked_document({**self.defaults, **document}, self.settings, where)

    def topics(self, settings: S) -> list[TopicSpec]:
        """Return the topics that the app writes, and its control topic."""
        from streamcore.service.topics import topics_of_service

        return topics_of_service(settings, self.lanes(settings))

    def build_app(self, settings: S) -> App:
        """Build the app. ``StreamError`` if the settings cannot run."""
        return self.factory().build_app(settings)

    def savepoints(self, settings: S, runtime: Runtime) -> Savepoints:
        """Return the savepoints of the app."""
        from streamcore.service.spark_savepoints import ServiceSavepoints

        return ServiceSavepoints(settings, self.build_app(settings), runtime)
