"""The driver's part of a look-up: asks the registry, and writes the answers into the checkpoint.

When a cut is planned, after the ends of its topics are known, the driver reads the versions of the subjects
``<topic>-value`` and gets the schemas that are new: a record of the cut was written after its schema was registered.
That is only to save time, so it is left out while the registry is away, and takes a small share of the time of one that
is slow. What it does not find (other names of subjects), tasks ask for while the cut runs (``store``), and a thread
answers them. The cut waits for that as long as it takes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from types import TracebackType

from streamcore.errors import Retryable, StreamError
from streamcore.outages import OUTAGES, Dependency, Outages
from streamcore.schema_registry.client import RegistryClient
from streamcore.schema_registry.schemas import SchemaId
from streamcore.schema_registry.settings import RegistrySettings
from streamcore.schema_registry.store import Request, SchemaStore
from streamcore.storage.location import BUCKETS

_LOG = logging.getLogger(__name__)
#: How often the thread looks for requests of tasks: in a bucket each look costs money.
_POLL_S, _POLL_BUCKET_S = 0.1, 1.0
#: A registry that does not answer is asked again after this time.
_PAUSE_AWAY_S = 1.0
#: After a thread's fault, which is a mistake in this code.
_PAUSE_FAULT_S = 10.0
#: A plan begins no further request after this time, and the next plans make none for ten times what it took.
_PREFETCH_S, _PREFETCH_PAUSES = 2.0, 10
#: The longest that an end waits for a request.
_END_S = 1.0
#: The newest versions of a subject that are read when a cut is planned; older ones when a record needs them.
_MAX_VERSIONS = 20
#: So many absent ids in one cut are worth a warning: a producer writes what is no id.
_MANY_ABSENT = 100


def registry_dependency(settings: RegistrySettings) -> Dependency:
    """Return the registry of these settings as a system that an app needs."""
    return Dependency(
        f"Schema registry {settings.url}",
        "Until it is back, a cut with a schema id that is new to the app waits, and nothing is lost",
        "Start the registry, or mend its login or the network; the app goes on by itself",
    )


class SchemaLookups:
    """A context manager: while it is entered, a thread answers the requests of tasks.

    ``topics``: those whose records have ids of the registry.
    """

    def __init__(
        self, settings: RegistrySettings, store: SchemaStore, topics: Sequence[str], outages: Outages = OUTAGES
    ) -> None:
        self._dependency = registry_dependency(settings)
        self._client = RegistryClient(settings)
        self._store, self._topics, self._outages = store, topics, outages
        self._lock = threading.Lock()  # of the client
        self._known: set[SchemaId] = set()
        self._compared: set[SchemaId] = set()
        self._versions: dict[str, set[int]] = {topic: set() for topic in topics}
        self._next_prefetch_s = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="schema-lookups", daemon=True)
        self._poll_s = _POLL_BUCKET_S if store.folder.url.startswith(BUCKETS) else _POLL_S

    def __enter__(self) -> SchemaLookups:
        self._store.discard_requests()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopping.set()
        self._thread.join(_END_S)

    def prefetch(self) -> None:
        """Get the new schemas of the topics' subjects. Does nothing while the registry is away, or asked for a task."""
        began_s, pause_s = self._outages.now_s(), 0.0
        if began_s < self._next_prefetch_s or not self._lock.acquire(blocking=False):
            return
        try:
            for topic in self._topics:
                self._prefetch_subject(topic, began_s + _PREFETCH_S)
        except Retryable:
            pause_s = _PAUSE_AWAY_S
        finally:
            self._lock.release()
        ended_s = self._outages.now_s()
        self._next_prefetch_s = ended_s + max(pause_s, _PREFETCH_PAUSES * (ended_s - began_s))

    def _prefetch_subject(self, topic: str, until_s: float) -> None:
        """Get the new schemas of a topic's subject, the newest first. ``until_s``: when it leaves the others for the
        next time."""
        if self._outages.now_s() >= until_s:
            return
        subject, known = f"{topic}-value", self._versions[topic]
        with self._outages.attempt(self._dependency, f"the versions of subject {subject}"):
            new = [version for version in self._client.versions(subject) if version not in known]
            for version in reversed(new[-_MAX_VERSIONS:]):
                if self._outages.now_s() >= until_s:
                    return
                found = self._client.version_id(subject, version)
                if found is not None:
                    self._get(found)
                    self._compare(found)
                known.add(version)
            known.update(new)

    def _get(self, schema_id: SchemaId) -> bool:
        """Make sure that the store has the schema; return whether the registry has it."""
        if schema_id in self._known:
            return True
        if self._store.read(schema_id) is None:
            schema = self._client.schema(schema_id)
            if schema is None:
                return False
            self._store.add(schema)
            self._compared.add(schema_id)
            _LOG.info("schema %s, %s, is new: %s", schema_id, schema.type, self._client.name)
        self._known.add(schema_id)
        return True

    def _compare(self, schema_id: SchemaId) -> None:
        """Report an id that an earlier process got another schema for. The first one counts, as in a replay."""
        if schema_id in self._compared:
            return
        schema, stored = self._client.schema(schema_id), self._store.read(schema_id)
        if None not in (schema, stored) and schema != stored:
            text = "%s: schema %s is not the one that it was when the app first saw the id; records with it are still "
            text += "decoded by that one. Ids are given once: if the registry was set up anew, give it another url"
            _LOG.warning(text, self._client.name, schema_id)
        self._compared.add(schema_id)

    def answer(self) -> None:
        """Answer all requests of tasks. Raises ``Retryable`` if the registry is away; requests stay then."""
        for request in self._store.requests():
            with self._lock:
                self._answer(request)

    def _answer(self, request: Request) -> None:
        pinned = self._store.absent(request.batch)
        absent: list[SchemaId] = []
        for schema_id in request.ids:
            if schema_id in pinned:
                continue
            with self._outages.attempt(self._dependency, f"schema {schema_id}"):
                if not self._get(schema_id):
                    absent.append(schema_id)
        self._store.add_absent(request.batch, absent)
        self._store.discard(request)
        if len(absent) > _MANY_ABSENT:
            text = "batch %d: the registry does not have %d schema ids, the first is %s; their records are dead letters"
            _LOG.warning(text, request.batch, len(absent), absent[0])

    def _run(self) -> None:
        pause_s = self._poll_s
        while not self._stopping.wait(pause_s):
            pause_s = self._poll_s
            try:
                self.answer()
            except Retryable:
                pause_s = _PAUSE_AWAY_S
            except StreamError as error:
                _LOG.error("schema look-ups: %s", error)
                pause_s = _PAUSE_AWAY_S
            except Exception:  # else the cut would wait for ever, and nobody knew why
                _LOG.exception("schema look-ups: a fault; trying again")
                pause_s = _PAUSE_FAULT_S
        with self._lock:
            self._client.close()
