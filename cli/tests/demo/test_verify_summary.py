"""All services print JSON of one schema."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from headgate.demo.verify.alerts import AlertVerifyResult
from headgate.demo.verify.documents import DocumentsVerifyResult
from headgate.demo.verify.etl import EtlVerifyResult
from headgate.demo.verify.sessions import SessionsVerifyResult
from headgate.demo.verify.summary import VerifySummary

KEYS = (
    "passed",
    "events",
    "produced",
    "expected",
    "missing",
    "unexpected",
    "duplicated",
    "wrong",
    "dead_letters",
    "details",
)


def test_the_json_of_a_verification_has_these_keys_in_this_order() -> None:
    summary = VerifySummary(
        passed=True,
        events=8,
        produced=3,
        expected=3,
        missing=0,
        unexpected=0,
        duplicated=0,
        wrong=0,
        dead_letters=1,
        details={"late": 2},
    )
    assert tuple(summary.document()) == KEYS == tuple(field.name for field in fields(VerifySummary))
    assert summary.document()["details"] == {"late": 2}


@pytest.mark.parametrize("result", [AlertVerifyResult, DocumentsVerifyResult, EtlVerifyResult, SessionsVerifyResult])
def test_the_result_of_every_service_has_the_documented_schema(result: type) -> None:
    assert result.summary.__annotations__["return"] == "VerifySummary"  # type: ignore[attr-defined]


def test_the_documentation_lists_the_keys() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "demo.md"
    assert tuple(re.findall(r"^\| `(\w+)` \|", page.read_text(encoding="utf-8"), re.MULTILINE)) == (*KEYS, "seconds")
