"""Enrichment against a real server that is slow, fails, hangs and drops connections.

Nothing here depends on how long something takes, but for time-outs that are far from what they guard.
"""

from __future__ import annotations

import gc
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from streamcore.enrich import (
    Caching,
    Enriched,
    Enricher,
    Enrichment,
    OnFailure,
    Order,
    Retries,
    close_kept,
    kept,
)
from streamcore.enrich.values import Answer, Key
from streamcore.errors import ConfigError, StreamError
from tests_enrich.store_server import Client, ManyClient, StoreServer, fields

ADDS = {"text": pl.String(), "size": pl.Int64()}
NO_CACHE = Caching(max_entries=0)
QUICK = Retries(attempts=3, pause_ms=1)
NEVER_MS = 60_000
