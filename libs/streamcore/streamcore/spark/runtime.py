"""Holds what an app needs to run: the lease on its checkpoint, and a Spark session that starts in the background.

The JVM takes half of the time to the first cut, so it starts first, while heavy modules are imported. This module
imports no heavy modules.
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
from streamcore.spark.session import SparkSettings, import_pyspark, open_session, set_environment
from streamcore.storage.atomic_files import make_folder
from streamcore.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Interpreter switch interval while the session starts: its thread makes a thousand calls to the JVM, and needs the
#: interpreter lock back after each, while the main thread imports.
_SWITCH_S = 0.0002


class Runtime:
    """A context manager: acquires the lease on the checkpoint (raises ``LeaseHeld`` if another process holds it) and
    starts the Spark session. On exit it stops the session and releases the lease.

    Without a checkpoint it only starts the session: a standby owns nothing before ``acquire``.
    """

    def __init__(self, app_name: str, checkpoint: Location | None, settings: SparkSettings) -> None:
        self._lease: Lease | None = None
        self._checkpoint = checkpoint
        self._app_name = app_name
        self._settings = settings
        #: The epoch of a new checkpoint; an existing checkpoint keeps its epoch.
        self.epoch = FIRST_EPOCH
        self._session: Future[SparkSession] = Future()
        self._begun = False
        self._delete_on_exit = False

    @property
    def lease(self) -> Lease:
        """The lease on the checkpoint. ``acquire`` comes first."""
        assert self._lease is not None, "acquired before it is used"
        return self._lease

    def acquire(
        self, checkpoint: Location, epoch: int | None = None, besides: Callable[[], None] = lambda: None
    ) -> None:
        """Acquire the lease of ``checkpoint``. ``besides``: a further check of ``Lease.check``.

        Raises ``LeaseHeld`` if another process holds it, and ``ConfigError`` if the checkpoint is in another epoch than
        ``epoch``; the lease is not held then.
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
        """Release the lease, if it is held."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def delete_checkpoint_on_exit(self) -> None:
        """Delete the checkpoint on exit, unless that is by an exception: once the session writes nothing any more, and
        before another process can get the lease."""
        self._delete_on_exit = True

    def session(self) -> SparkSession:
        """Wait for the session and return it. Raise ``Permanent`` if it did not start."""
        return self._session.result()

    def check_alive(self) -> None:
        """Raise ``Permanent`` if the session has ended. Spark ends it after repeated failures of executors."""
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
            if self._delete_on_exit and kind is None and self._checkpoint is not None:
                self.lease.check()  # Spark may have taken long to stop
                CheckpointRoot(self._checkpoint).delete()
        finally:
            self.release()

    def _begin(self) -> None:
        """Start the session in a thread, unless it was started. The lease calls this while it waits for a dead owner's
        lease to become stale."""
        if not self._begun:
            self._begun = True
            set_environment(self._settings)
            import_pyspark()
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
