"""``python -m headgate_search --settings FILE`` (see ``streamcore.service.main``)."""

from __future__ import annotations

import sys

from headgate_search.service import SERVICE
from streamcore.service.main import run_service

if __name__ == "__main__":
    sys.exit(run_service(SERVICE))
