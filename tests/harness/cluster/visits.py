"""Sends events of the shop that name one user each, from a pod."""

from __future__ import annotations

import uuid

from tests.harness.cluster.toolbox import Toolbox

#: First user, one after the last, step, records a second (0: at once). The times differ by less than the disorder that
#: an app allows for.
_PRODUCE = """
import json, sys, time, confluent_kafka as ck
bootstrap, kind = sys.argv[1:3]
first, stop, step, rate = map(int, sys.argv[3:])
client = ck.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
began = time.monotonic()
for sent, user in enumerate(range(first, stop, step)):
    if rate:
        time.sleep(max(0, began + sent / rate - time.monotonic()))
    event = {"event_id": f"{kind}-{user}", "ts": 1_577_923_200_000 + sent % 5_000, "type": kind, "user_id": f"u{user}",
             "quantity": 100}
    while True:
        try:
            client.produce("shop", json.dumps(event).encode(), event["user_id"].encode())
            break
        except BufferError:
            client.poll(0.1)
    client.poll(0)
if client.flush(60):
    raise SystemExit("records were not sent")
"""
QUANTITY = 100


def send(toolbox: Toolbox, kind: str, users: range, rate: int = 0) -> str:
    """Send an event of a type for each user ``u<number>``, with a quantity of 100; return the name of the pod."""
    name = f"{kind}-{uuid.uuid4().hex[:6]}"
    numbers = [str(n) for n in (users.start, users.stop, users.step, rate)]
    toolbox.start(name, ["python", "-c", _PRODUCE, toolbox.bootstrap, kind, *numbers])
    return name
