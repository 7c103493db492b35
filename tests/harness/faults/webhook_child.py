"""A process that posts cuts to a webhook: ``webhook_child.py URL CUTS FIRST``; ``FIRST``: its first cut."""

from __future__ import annotations

import sys

from streamcore.cuts.writer_id import WriterId
from streamcore.sinks.webhook.settings import WebhookSettings, WebhookSpec
from streamcore.sinks.webhook.sink import WebhookSink
from tests.harness.cut_ids import cut_id
from tests.harness.faults.delta_child import SCHEMA, cut


def main() -> None:
    """Post the cuts that the arguments name, four rows a request; print each cut that is delivered."""
    url, cuts, first = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    sink = WebhookSink(WebhookSettings({"rows": WebhookSpec(url, batch_rows=4)}), {"rows": SCHEMA})
    sink.open(WriterId("app", 1))
    for batch in range(first, cuts):
        sink.write(cut_id(batch), {"rows": cut(batch)})
        print(batch, flush=True)
    sink.close()


if __name__ == "__main__":
    main()
