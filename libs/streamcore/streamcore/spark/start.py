"""How an app begins: it owns its checkpoint, then its Spark session starts in the background.

Half of the time to the first cut is the JVM's, so it comes first, and what is heavy to import is imported meanwhile.
Importing this module costs nothing.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from streamcore.checkpoint.lease import Lease
from streamcore.errors import Permanent
from streamcore.spark.session import SparkSettings, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: While the session starts: a thousand calls to the JVM, and after each the thread that imports must let go.
_SWITCH_S = 0.0002


class Start:
    """Entered, it holds the lease on the checkpoint (``ConfigError`` if another app does) and starts the session.

    Leaving stops the session, whatever became of its start, and gives the lease back.
    """

    def __init__(self, app_name: str, checkpoint: Path, settings: SparkSettings) -> None:
        checkpoint.mkdir(parents=True, exist_ok=True)
        self.lease = Lease(checkpoint)
        self._app_name = app_name
        self._settings = settings
        self._session: Future[SparkSession] = Future()

    def session(self) -> SparkSession:
        """The session, once it is there; ``Permanent`` if it did not start."""
        return self._session.result()

    def __enter__(self) -> Start:
        self.lease.__enter__()
        threading.Thread(target=self._run, name="session-start", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            with contextlib.suppress(Exception):
                self.session().stop()
        finally:
            self.lease.__exit__(kind, error, at)

    def _run(self) -> None:
        usual_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        try:
            session = open_session(f"headgate-{self._app_name}", self._settings)
        except Exception as error:
            failed = Permanent(f"the Spark session did not start: {error}; what the JVM said is on standard error")
            failed.__cause__ = error
            self._session.set_exception(failed)
            return
        finally:
            sys.setswitchinterval(usual_s)
        self._session.set_result(session)
        with contextlib.suppress(Exception):  # the first cut finds the Python workers awake, or wakes them itself
            session.sparkContext.parallelize([0], 1).map(abs).collect()
