"""The lanes of the rules app. Unlike ``app``, this module does not import Spark."""

from __future__ import annotations

from streamcore.wire.lanes import ALERTS, DEAD_LETTERS, LATE, SHADOW, STATUS

LANES = (ALERTS, SHADOW, STATUS, LATE, DEAD_LETTERS)
