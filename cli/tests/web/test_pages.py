"""Pages show hostile texts as text, wherever these come from, and keep their policy."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import quote

import pytest

from tests.harness.apps.console_scene import HOSTILE, Shown
from tests.harness.apps.explained_app import START

pytestmark = pytest.mark.kafka


class Elements(HTMLParser):
    """Collects the elements and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def list_pages(shown: Shown) -> list[str]:
    (letter,) = shown.program.get(f"{shown.api}/dead-letters").json["dead_letters"]
    alerts = shown.program.get(f"{shown.api}/alerts?rule=seen").json["alerts"]
    hostile = next(one["alert_id"] for one in alerts if one["key"]["user_id"] == HOSTILE)
    rule = f"{shown.pages}/rules/seen"
    (decision,) = (
        one["decision_id"]
        for one in shown.program.get(f"{shown.api}/decisions").json["decisions"]
        if one["key"]["user_id"] == HOSTILE
    )
    return [
        "/",
        "/components",
        shown.pages,
        f"{shown.pages}/rules",
        f"{shown.pages}/rules?text=none",
        f"{shown.pages}/new-rule",
        *(f"{rule}?tab={tab}" for tab in ("now", "yaml", "tests", "history", "trial", "backtest", "why")),
        f"{shown.pages}/alerts",
        f"{shown.pages}/alerts?key=%3Cscript%3Ealert(1)%3C/script%3E",
        f"{shown.pages}/alerts/{hostile}",
        f"{shown.pages}/decisions",
        f"{shown.pages}/decisions?outcome={quote(HOSTILE)}&policy={quote(HOSTILE)}",
        f"{shown.pages}/decisions?key={quote(HOSTILE)}",
        f"{shown.pages}/decisions/{decision}",
        f"{shown.pages}/dead-letters",
        f"{shown.pages}/dead-letters/{letter['at']}",
        f"{shown.pages}/rules/%3Cscript%3E",
        f"{rule}?tab=why&k.user_id={quote(HOSTILE)}",
        f"{shown.pages}/keys",
        f"{shown.pages}/keys?column=user_id&value={quote(HOSTILE)}",
        f"{shown.pages}/decision-policies",
        f"{shown.pages}/decision-policies/guard",
        f"{shown.pages}/features",
        f"{shown.pages}/features?text={quote(HOSTILE)}",
        f"{shown.pages}/features/usual",
        f"{shown.pages}/features/usual?k.user_id={quote(HOSTILE)}&at={START + 60_000}",
        f"{shown.pages}/features/usual?k.user_id=u1&at={quote(HOSTILE)}",
        f"{shown.pages}/features/%3Cscript%3E",
        f"{shown.pages}/rules/past",
        f"{shown.pages}/lists",
        f"{shown.pages}/lists/denied",
        f"{shown.pages}/streams",
        f"{shown.pages}/streams/shop",
        f"{shown.pages}/releases",
        f"{shown.pages}/new-release?name={quote(HOSTILE)}",
        f"{shown.pages}/new-release?rule=seen@1&name={quote(HOSTILE)}",
        f"{shown.pages}/new-release?rule={quote(HOSTILE)}",
        f"{shown.pages}/health",
    ]


def test_no_page_has_an_element_or_attribute_from_a_text(shown: Shown) -> None:
    seen = 0
    for path in list_pages(shown):
        page = shown.browser.get(path)
        assert page.status in (200, 404), path
        elements = Elements(page.text).found
        assert not [tag for tag, _ in elements if tag in ("img", "iframe", "style", "object", "embed", "base")], path
        scripts = {a.get("src") for tag, a in elements if tag == "script"}
        assert scripts <= {f"/static/{name}.js" for name in ("console", "workbench", "completion")}, path
        inline = [name for _, attributes in elements for name in attributes if name.startswith("on") or name == "style"]
        assert not inline, path
        links = [str(attributes.get("href", "")) for _, attributes in elements if attributes.get("href")]
        assert all(re.match(r"/|\?|#", link) for link in links), path
        seen += page.text.count("&lt;img src=x onerror=alert(1)&gt;")
    assert seen >= 8, "the hostile texts are shown"


def test_every_answer_has_a_policy_without_unsafe_sources(shown: Shown) -> None:
    for path in ("/", "/static/console.js", f"{shown.api}/rules", "/no-such-page", f"{shown.pages}/rules"):
        policy = shown.browser.get(path).headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "require-trusted-types-for 'script'" in policy


def test_each_page_names_the_command_that_does_the_same(shown: Shown) -> None:
    for path in list_pages(shown):
        page = shown.browser.get(path)
        if page.status == 200 and path not in ("/components",):
            assert '<code id="command">headgate ' in page.text, path


def test_scripts_and_styles_are_small_and_change_their_tag_with_their_content(shown: Shown) -> None:
    size = 0
    for name in ("console.js", "workbench.js", "completion.js", "console.css", "tokens.css", "icon.svg"):
        answer = shown.browser.get(f"/static/{name}")
        size += len(answer.body)
        assert shown.browser.get(f"/static/{name}", If_None_Match=answer.headers["etag"]).status == 304
    assert size < 80_000
    assert shown.browser.get("/static/secrets.py").status == 404
