"""Webhooks against a real HTTP server: what it receives, what it rejects, and what it gets twice."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest

from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError, Fenced, Retryable
from streamcore.sinks.sink import RetryPolicy, SinkHooks, WriteOutcome
from streamcore.sinks.webhook.settings import WebhookSettings, WebhookSpec
from streamcore.sinks.webhook.sink import WebhookSink
from tests.harness.cut_ids import cut_id
from tests.harness.faults import webhook_child
from tests.harness.faults.delta_child import PER_CUT
from tests.harness.servers.webhook_receiver import WebhookReceiver, WebhookRequest, run_receiver

_SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.decimal128(12, 2)), ("at", pa.timestamp("ms", "UTC"))])
_OWNER = WriterId("app", 3)
_KEY = "0123456789abcdef-key"


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with run_receiver() as found:
        yield found


def _rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "amount": [None] * len(ids), "at": [1_700_000_000_123] * len(ids)}).cast(_SCHEMA)


def _sink(receiver: WebhookReceiver, hooks: SinkHooks | None = None, **entries: Any) -> WebhookSink:
    spec = WebhookSpec(receiver.url, **entries)
    sink = WebhookSink(WebhookSettings({"rows": spec}, patience=RetryPolicy(500, 1, 10)), {"rows": _SCHEMA}, hooks)
    sink.open(_OWNER)
    return sink


def test_a_cut_arrives_in_order_in_requests_of_at_most_so_many_rows(receiver: WebhookReceiver) -> None:
    written = _sink(receiver, batch_rows=4).write(cut_id(7), {"rows": _rows(*range(10))})
    assert (written.outcome, written.rows, list(written.rejected)) == (WriteOutcome.COMMITTED, 10, [])
    assert [request.ids for request in receiver.requests] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert orjson.loads(receiver.requests[0].body)[0] == {
        "id": 0,
        "amount": None,
        "at": "2023-11-14T22:13:20.123+00:00",
    }
    message_ids = [request.headers["webhook-id"] for request in receiver.requests]
    assert message_ids == [f"app-rows-3-7-{cut_id(7).digest}-{place}" for place in ("0-4", "4-4", "8-2")]


def test_a_request_has_at_most_so_many_bytes_and_a_larger_row_goes_alone(receiver: WebhookReceiver) -> None:
    _sink(receiver, batch_bytes=120).write(cut_id(0), {"rows": _rows(1, 2, 3)})
    assert [request.ids for request in receiver.requests] == [[1, 2], [3]]
    receiver.requests.clear()
    _sink(receiver, batch_bytes=1).write(cut_id(0), {"rows": _rows(1, 2)})
    assert [request.ids for request in receiver.requests] == [[1], [2]]


@pytest.mark.parametrize("prefixed", [False, True])
def test_the_signature_is_the_one_of_standard_webhooks(
    receiver: WebhookReceiver, tmp_path: Path, *, prefixed: bool
) -> None:
    key = tmp_path / "key"
    key.write_text("whsec_" + base64.b64encode(_KEY.encode()).decode() if prefixed else _KEY + "\n")
    (tmp_path / "token").write_text("Bearer abc\n")
    secret = {"Authorization": tmp_path / "token"}
    sink = _sink(receiver, signing_key_file=key, headers={"X-Shop": "1"}, secret_headers=secret)
    sink.write(cut_id(0), {"rows": _rows(1)})
    (request,) = receiver.requests
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    expected = base64.b64encode(hmac.new(_KEY.encode(), signed, hashlib.sha256).digest()).decode()
    assert request.headers["webhook-signature"] == f"v1,{expected}"
    assert request.headers["X-Shop"] == "1"
    assert request.headers["Authorization"] == "Bearer abc"


@pytest.mark.parametrize("failure", [301, 401, 404, 408, 410, 429, 500, 503, None])
def test_a_request_that_fails_for_now_is_sent_again_with_the_same_id(
    receiver: WebhookReceiver, failure: int | None
) -> None:
    receiver.answer = lambda _: failure if len(receiver.requests) in (1, 2) else 200
    assert _sink(receiver).write(cut_id(0), {"rows": _rows(1, 2)}).rows == 2
    assert [request.ids for request in receiver.requests] == [[1, 2]] * 3
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1


def test_a_receiver_that_stays_away_stops_the_cut_and_a_replay_sends_it_whole_with_the_same_ids(
    receiver: WebhookReceiver,
) -> None:
    receiver.answer = lambda request: 503 if request.ids == [3] else 200
    sink = _sink(receiver, batch_rows=2)
    with pytest.raises(Retryable, match="answered 503"):
        sink.write(cut_id(0), {"rows": _rows(1, 2, 3)})
    before = [request.headers["webhook-id"] for request in receiver.requests]
    receiver.answer = lambda _: 200
    receiver.requests.clear()
    assert sink.write(cut_id(0), {"rows": _rows(1, 2, 3)}).rows == 3
    again = [request.headers["webhook-id"] for request in receiver.requests]
    assert [request.ids for request in receiver.requests] == [[1, 2], [3]], "the first two arrive twice: at least once"
    assert list(dict.fromkeys(before)) == again


@pytest.mark.slow
def test_a_process_killed_within_a_cut_loses_nothing_and_repeats_requests_of_that_cut_only(
    receiver: WebhookReceiver,
) -> None:
    command = [sys.executable, webhook_child.__file__, receiver.url, "4"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([*command, "0"], env=environment, stdout=subprocess.PIPE, text=True) as child:

        def kill_at_the_fifth(_: WebhookRequest) -> int:
            if len(receiver.requests) == 5:
                child.kill()
            return 204

        receiver.answer = kill_at_the_fifth
        printed = child.communicate(timeout=60)[0].split()
    assert printed == ["0"], "the second request of the second cut was answered to nobody"
    receiver.answer = lambda _: 204
    # Spark repeats the last cut.
    subprocess.run([*command, "1"], env=environment, check=True, capture_output=True, timeout=60)
    by_id = {request.headers["webhook-id"]: request.ids for request in receiver.requests}
    assert sorted(i for ids in by_id.values() for i in ids) == list(range(4 * PER_CUT)), "each row once, by the id"
    assert len(receiver.requests) - len(by_id) == 2, "without the id these arrive twice"


def test_rows_that_the_receiver_rejects_are_dead_letters_and_all_others_arrive_once(receiver: WebhookReceiver) -> None:
    receiver.answer = lambda request: 422 if {13, 40} & {*request.ids} else 200
    written = _sink(receiver).write(cut_id(0), {"rows": _rows(*range(64))})
    assert [(row.row, row.code) for row in written.rejected] == [(13, "http_422"), (40, "http_422")]
    assert "answered 422" in written.rejected[0].reason
    assert "the amount of a row is odd" in written.rejected[0].reason
    assert receiver.accepted == [i for i in range(64) if i not in (13, 40)]
    assert written.rows == 62


def test_the_search_for_rejected_rows_ends_after_so_many_requests(receiver: WebhookReceiver) -> None:
    receiver.answer = lambda _: 400
    written = _sink(receiver, split_requests=6).write(cut_id(0), {"rows": _rows(*range(64))})
    assert len(receiver.requests) == 7
    assert [row.row for row in written.rejected] == list(range(64)), "none is lost"


def test_a_process_that_lost_the_app_sends_nothing_more(receiver: WebhookReceiver) -> None:
    def raise_fenced() -> None:
        raise Fenced("another process has the lease")

    with pytest.raises(Fenced, match="lease"):
        _sink(receiver, SinkHooks(still_owner=raise_fenced)).write(cut_id(0), {"rows": _rows(1)})
    assert receiver.requests == []


def test_a_cut_without_rows_sends_nothing(receiver: WebhookReceiver) -> None:
    assert _sink(receiver).write(cut_id(0), {}).outcome == WriteOutcome.EMPTY
    assert receiver.requests == []


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"url": "ftp://host/x"}, "write http://host/path"),
        ({"url": "https://user:pass@host/x"}, "no user or password in a URL"),
        ({"url": "https://host/x", "headers": {"Authorization": "hush"}}, "header Authorization is a secret"),
        ({"url": "https://host/x", "headers": {"webhook-id": "1"}}, "header 'webhook-id' cannot be set"),
        ({"url": "https://host/x", "headers": {"X": "a\r\nb"}}, "printable ASCII"),
    ],
)
def test_settings_that_cannot_work_are_rejected(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as rejected:
        WebhookSpec(**entries)
    assert "pass" not in str(rejected.value).replace("password", "")
    assert "hush" not in str(rejected.value)


def test_a_missing_or_short_key_is_rejected_at_the_start(receiver: WebhookReceiver, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        _sink(receiver, signing_key_file=tmp_path / "absent")
    (tmp_path / "key").write_text("hush")
    with pytest.raises(ConfigError, match="less than 16 bytes") as rejected:
        _sink(receiver, signing_key_file=tmp_path / "key")
    assert "hush" not in str(rejected.value)
