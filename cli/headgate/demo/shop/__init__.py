"""A simulated shop with customers and a few fraudsters, for `headgate up`, demonstrations and tests.

A stream is a pure function of ``ShopSettings``: record number ``i`` is always the same bytes. So a generator can stop
anywhere and continue, and the output that each service must produce from the first ``n`` records can be computed
without running the service (``expected_alerts``, ``expected_rows``, ``expected_documents``, ``expected_sessions``).
Only ``producer`` knows Kafka; no module here reads a clock.
"""

from __future__ import annotations
