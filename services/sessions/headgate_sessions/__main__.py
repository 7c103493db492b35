"""``python -m headgate_sessions --settings FILE`` (see ``streamcore.service.main``)."""

from __future__ import annotations

import sys

from headgate_sessions.service import SERVICE

if __name__ == "__main__":
    sys.exit(SERVICE.run())
