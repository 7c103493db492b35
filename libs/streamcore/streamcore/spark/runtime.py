"""How an app begins: it owns its checkpoint, then its Spark session starts in the background.

Half of the time to the first cut is the JVM's, so it comes first, and what is heavy to import is imported meanwhile.
Importing this module costs nothing.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING

from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.checkpoint.epoch import FIRST_EPOCH
from streamcore.errors import Permanent
from streamcore.leases.acquire import Lease, lease_for
from streamcore.spark.session import SparkSettings, open_session
from streamcore.storage.atomic_files import make_folder
from streamcore.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: While the session starts: a thousand calls to the JVM, and after each the thread that imports must let go.
_SWITCH_S = 0.0002


class Runtime:
    """Entered, it holds the lease on the checkpoint (``ConfigError`` if another app does) and starts the session.

    Without a checkpoint it only starts the session: a standby owns nothing before ``own``. Leaving stops the session,
    whatever became of its start, and gives the lease back.
    """

    def __init__(self, app_name: str, checkpoint: Location | None, settings: SparkSettings) -> None:
        self._lease: Lease | None = None
        self._checkpoint = checkpoint
        self._app_name = app_name
        self._settings = settings
        #: Of a checkpoint that is new; what is there keeps its own.
        self.epoch = FIRST_EPOCH
        self._session: Future[SparkSession] = Future()
        self._begun = False

    @property
    def lease(self) -> Lease:
        """On the checkpoint that is owned."""
        assert self._lease is not None, "owned before it is run"
        return self._lease

    def acquire(
        self, checkpoint: Location, epoch: int | None = None, besides: Callable[[], None] = lambda: None
    ) -> None:
        """Take the lease. ``LeaseHeld`` when another process has it, ``ConfigError`` when the checkpoint is in another
        epoch than the one that is asked for; nothing is owned then. ``besides``: what else it takes to be the owner.
        """
        make_folder(checkpoint)
        lease = lease_for(checkpoint, besides=besides)
        lease.acquire(self._begin)
        try:
            self.epoch = FIRST_EPOCH if epoch is None else CheckpointRoot(checkpoint).adopt_epoch(epoch)
        except BaseException:
            lease.release()
            raise
        self._lease = lease

    def release(self) -> None:
        """Give the lease back."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def session(self) -> SparkSession:
        """Return the session, once it is there; ``Permanent`` if it did not start."""
        return self._session.result()

    def check_alive(self) -> None:
        """``Permanent`` when the session is there no more: Spark ends it when executors fail again and again."""
        if self.session().sparkContext._jsc.sc().isStopped():
            raise Permanent("the Spark session has ended by itself; its messages are on standard error")

    def __enter__(self) -> Runtime:
        try:
            if self._checkpoint is not None:
                self.acquire(self._checkpoint)
        except BaseException:
            self._end()
            raise
        self._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._end()
        finally:
            self.release()

    def _begin(self) -> None:
        """Start the session, unless that is under way: it need not wait until an owner that is gone is known to be."""
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._run, name="session-start", daemon=True).start()

    def _end(self) -> None:
        if self._begun:
            with contextlib.suppress(Exception):
                self.session().stop()

    def _run(self) -> None:
        usual_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        try:
            session = open_session(f"headgate-{self._app_name}", self._settings)
        except Exception as error:
            failed = Permanent(f"the Spark session did not start: {error}; the JVM's messages are on standard error")
            failed.__cause__ = error
            self._session.set_exception(failed)
            return
        finally:
            sys.setswitchinterval(usual_s)
        self._session.set_result(session)
        with contextlib.suppress(Exception):  # the first cut finds the Python workers awake, or wakes them itself
            tasks = 1 if self._settings.executors is None else self._settings.executors.slots
            session.sparkContext.parallelize(range(tasks), tasks).map(abs).collect()
