"""``python -m streamcore.service.program MODULE:TOPOLOGY --settings FILE``: run a program as a service.

The options are those of every service (``streamcore.service.main``).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from streamcore.errors import ConfigError
from streamcore.service import logs
from streamcore.service.main import ServiceExit, run_service
from streamcore.service.program.definition import program_service


def main(arguments: Sequence[str]) -> int:
    """Run the program that the first argument names; return the exit code."""
    name = "headgate-program"
    logs.configure(name)
    try:
        service = program_service(arguments[0] if arguments else "")
    except ConfigError as error:
        logging.getLogger(name).error("%s: %s", type(error).__name__, error)
        return ServiceExit.SETTINGS
    return run_service(service, arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
