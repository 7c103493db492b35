"""Messages of a service on standard error: plain for people, one JSON object a line for log collectors.

Costs nothing where nothing is logged. Does not know its callers.
"""

from __future__ import annotations

import logging
import sys
from typing import Literal

import orjson

#: The attribute of a log record with further entries of its JSON object.
FIELDS = "headgate_fields"
LogStyle = Literal["auto", "json", "plain"]


class _Plain(logging.Formatter):
    """``service: message``, as every command of ours speaks."""

    def __init__(self, service: str) -> None:
        super().__init__(f"{service}: %(message)s")


class _Json(logging.Formatter):
    """One object a line: ``ts`` (milliseconds), ``level``, ``service``, ``logger``, ``message``, ``error``; of a
    cut also its whole report as ``cut``."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        """See the class."""
        entry: dict[str, object] = {
            "ts": int(record.created * 1000),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        entry |= getattr(record, FIELDS, {})
        return orjson.dumps(entry, default=str).decode()


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """Py4J logs under the root's name that the JVM ended; the runner reports why."""
    return record.module != "java_gateway"


def configure(service: str, style: LogStyle = "auto") -> None:
    """Configure the logs of this process. ``auto`` is plain on a terminal and elsewhere; a pod sets JSON explicitly."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(service) if style == "json" else _Plain(service))
    handler.addFilter(_is_not_py4j)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in (service, "streamcore"):
        logging.getLogger(name).setLevel(logging.INFO)
    # kafka-python reports each task that held up its loop for 100 ms, which a busy machine does.
    logging.getLogger("kafka.net.selector").setLevel(logging.ERROR)
    # What a query raises on purpose crosses the JVM; the runner decides what of it is an error.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
