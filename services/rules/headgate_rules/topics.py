"""The topics of the rules app. Apart from the app, so that who only needs their names does not import Spark."""

from __future__ import annotations

from streamcore.wire.lanes import ALERTS, DEAD_LETTERS, LATE, SHADOW, STATUS

LANES = (ALERTS, SHADOW, STATUS, LATE, DEAD_LETTERS)
