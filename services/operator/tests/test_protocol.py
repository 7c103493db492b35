"""Requests as drivers read them, reports as they write them; nothing that a driver may say is an error here."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from headgate_operator.protocol import Request, parse_report, request_id

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
_NAMES = st.sampled_from(["phase", "epoch", "batch", "committed", "lag_s", "plan", "answers", "at_ms", "message"])


def test_requests_are_as_the_contract_has_them() -> None:
    assert json.loads(Request("a", "drain").text()) == {"id": "a", "do": "drain", "savepoint": None}
    assert json.loads(Request("a", "savepoint", savepoint="n").text()) == {"id": "a", "do": "savepoint", "name": "n"}
    go = json.loads(Request("a", "go", epoch=3, restore="n").text())
    assert go == {"id": "a", "do": "go", "epoch": 3, "restore": "n", "begin": False, "accept_newer": False}


def test_a_report_is_read_with_its_answers() -> None:
    sealed = {"name": "n", "batch": 7, "epoch": 2, "digest": "d", "bytes": 9}
    said = {"phase": "running", "epoch": 2, "batch": 7, "answers": {"a": {"ok": True, "savepoint": sealed}}}
    report = parse_report(json.dumps(said))
    assert report is not None
    answer = report.answers["a"]
    assert answer.ok
    assert answer.savepoint is not None
    assert (answer.savepoint.batch, answer.savepoint.size_bytes) == (7, 9)


@given(st.dictionaries(_NAMES, _JSON) | _JSON)
def test_whatever_a_driver_says_is_a_report_or_none(said: object) -> None:
    parse_report(json.dumps(said))
    request_id(json.dumps(said))


def test_an_annotation_that_is_no_json_is_no_report() -> None:
    assert parse_report("{") is None
    assert request_id("[") == ""
