"""An invented shop with customers and a few fraudsters, for `headgate up`, demonstrations and tests.

A stream is a pure function of ``ShopSettings``: record number ``i`` is always the same bytes. So a generator can stop
anywhere and go on, and the alerts that the shipped rules must raise on the first ``n`` records can be computed without
running the rules (``expected_alerts``). Only ``producer`` knows Kafka; no module here reads a clock.
"""

from __future__ import annotations
