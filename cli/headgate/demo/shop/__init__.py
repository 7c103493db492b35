"""An invented shop: what its customers, and a few fraudsters, do; for `headgate up`, demonstrations and tests.

A stream is a pure function of ``ShopSettings``: record number ``i`` is always the same bytes. So a generator can stop
anywhere and go on, and what the shipped rules must find in the first ``n`` records can be worked out without running
them (``expected``). Nothing here reads a clock or knows Kafka, except for ``produce``.
"""

from __future__ import annotations
