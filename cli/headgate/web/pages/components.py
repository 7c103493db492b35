"""The page that shows every component with its states, from made-up values."""

from __future__ import annotations

from headgate.web.changes.check import CheckValue
from headgate.web.pages import marks
from headgate.web.pages.frame import Frame
from headgate.web.problems import ProblemCode, ProblemError, ProblemPlace
from headgate.web.rendering import render
from headgate.web.state.values import AlertValue, AppValue, CodeCount, Need, ProcessValue, TestValue

COLOURS = ("ground", "surface", "sunken", "ink", "accent", "good", "warn", "bad", "calm")
_COUNTS = (0, 1, 3, 2, 5, 8, 4, 0, 0, 2, 6, 9, 12, 7, 3)
_YAML = "id: large-payment\nversion: 3\nwhere: amuont > 500\nthen:\n  severity: high\n"
_PLACE = ProblemPlace(line=3, column=8, path="where", message="no field amuont; did you mean amount?", detail="")
_TESTS = (
    TestValue(name="a payment of exactly 500 fires", passed=True, diff=(), line=12),
    TestValue(name="a refund does not", passed=False, diff=("- expected no alert", "+ user_id=u1"), line=17),
)
_NEEDS = (
    Need(level="bad", what="rule a was rejected", detail="no field amuont", path="#", command="headgate rules list"),
    Need(
        level="warn", what="3 dead letters: not_json", detail="no JSON", path="#", command="headgate deadletters list"
    ),
    Need(level="info", what="b version 2 is on trial", detail="Compare it.", path="#", command="headgate rules list"),
)
_CLAUSE = {
    "text": "a and b",
    "result": "TRUE",
    "decided": True,
    "joint": "and",
    "values": {},
    "note": "",
    "parts": [
        {
            "text": text,
            "result": result,
            "decided": result == "TRUE",
            "joint": None,
            "values": {"amount": value},
            "note": note,
            "parts": [],
        }
        for text, result, value, note in (
            ("amount > 500", "TRUE", "720.50", ""),
            ("country = 'FR'", "FALSE", "DE", ""),
            ("amount < limit", "NULL", None, "limit is NULL"),
        )
    ],
}


def components_page(frame: Frame) -> str:
    """Render the page."""
    process = ProcessValue(
        phase="running", runs=True, age_s=2, epoch=1, batch=812, lag_rows=1_240, lag_s=1.4, busy_percent=63,
        watermark_ms=frame.now_ms, message="",
    )  # fmt: skip
    code = CodeCount(code="not_json", count=42, latest_ms=frame.now_ms, example="no JSON", at="0/17")
    app = AppValue(
        app="shop", process=process, rules={"live": 17, "shadow": 2}, epoch=24, alerts_per_minute=_COUNTS,
        alerts_cut=False, dead_letters=(code,), needs=_NEEDS,
    )  # fmt: skip
    alert = AlertValue(
        alert_id="0" * 32, rule="large-payment", version=3, severity="high", message="u17 paid 720.50 EUR at once",
        key={"user_id": "u17"}, event_time_ms=frame.now_ms, raised_ms=frame.now_ms - 90_000, lane="alerts",
        partition=0, offset=1, body={},
    )  # fmt: skip
    alerts = tuple(alert.model_copy(update={"severity": name}) for name in ("low", "medium", "high", "critical"))
    wrong = CheckValue(
        rule="large-payment", version=3, problems=(_PLACE,), warnings=(), cost=None, cheap=None, tests=()
    )
    sound = CheckValue(
        rule="large-payment", version=3, problems=(), warnings=(), cost="found by hash", cheap=True, tests=_TESTS
    )
    problem = ProblemError(412, ProblemCode.CHANGED_MEANWHILE, "rule large-payment was changed meanwhile").document
    return render(
        "components.html",
        frame=frame,
        app=app,
        alerts=alerts,
        wrong=wrong,
        sound=sound,
        problem=problem,
        colours=COLOURS,
        bars=marks.minute_bars(_COUNTS),
        chart=marks,
        lines=marks.yaml_lines(_YAML, (_PLACE,)),
        diff=marks.diff_lines("version: 2\nwhere: amount > 500", "version: 3\nwhere: amount > 700"),
        clause=_CLAUSE,
    )
