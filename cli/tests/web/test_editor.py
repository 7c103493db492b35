"""The scripts of the editor and the tour in a browser, on a broker and without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from headgate.rules.publish import AppTopics
from headgate.web.access.roles import Role
from streamcore.kafka.control_topic import control_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from tests.harness.servers.chromium import open_browser, visit
from tests.harness.servers.console import serve

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
RULE = """\
id: r
version: 1
owner: me
on: shop
where: type = 'payment' and amount > 100 and country = 'DE'
then: {severity: low, message: "{user_id}"}
tests:
  - name: the second event should fire
    events:
      - {type: view, user_id: u1}
      - {type: payment, user_id: u1, amount: 99, country: DE}
    expect: [{user_id: u1}]
  - name: one too many
    events: [{type: view, user_id: u1}, {type: payment, user_id: u1, amount: 200, country: DE}]
    expect: []
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as found:
        yield found


@pytest.fixture(scope="module")
def app(kafka: KafkaSettings) -> str:
    name = f"editor-{uuid.uuid4().hex[:8]}"
    topics = AppTopics(name)
    ensure_topics(kafka, [control_topic(topics.control), TopicSpec(topics.status, 2)])
    return name


def put_cursor(page: Page, at: int) -> None:
    page.evaluate("at => { const a = document.getElementById('yaml'); a.focus(); a.setSelectionRange(at, at); }", at)


def test_the_editor_replaces_the_word_at_the_cursor_or_none(kafka: KafkaSettings, app: str, browser: Browser) -> None:
    with serve(kafka, app) as server, visit(browser, server) as visitor:
        page, options = visitor.page, visitor.page.get_by_role("option")
        visitor.open(f"/apps/{app}/new-rule")
        editor = page.get_by_label("Rule as YAML")
        editor.fill(RULE)
        failed = page.locator(".under .line.failed .note")
        expect(failed).to_have_count(2)
        expect(failed.first).to_contain_text("amount > 100 is FALSE, amount 99.00")
        expect(failed.last).to_have_text("✗ failed, 1 alert: user_id u1")

        typed = RULE.replace("amount > 100", "amou > 100")
        for moving in ("ArrowLeft", "Control+ArrowLeft"):
            editor.fill(RULE.replace("amount > 100", "amo > 100"))
            put_cursor(page, RULE.index("amount") + 3)
            page.keyboard.type("u")
            expect(options.first).to_be_visible()
            page.keyboard.press(moving)
            expect(options).to_have_count(0)
            assert editor.input_value() == typed
        put_cursor(page, typed.index("amou") + 4)
        page.keyboard.press("Control+Space")
        expect(options.first).to_have_attribute("aria-selected", "true")
        page.keyboard.press("Enter")
        expect(editor).to_have_value(RULE)

        held = list[Route]()

        def hold(one: Route) -> None:
            held.append(one)

        page.route("**/completions", hold)
        with page.expect_request("**/completions"):
            page.keyboard.press("Control+Space")
        page.keyboard.press("ArrowLeft")  # before the answer
        with page.expect_response("**/completions"):
            held[0].continue_()
        page.wait_for_timeout(200)
        assert options.count() == 0


def test_the_tour_has_the_focus_and_leaves_out_what_a_viewer_may_not(
    kafka: KafkaSettings, app: str, browser: Browser
) -> None:
    with serve(kafka, app, role=Role.VIEWER) as server, visit(browser, server, tour=True) as visitor:
        page, tour = visitor.page, visitor.page.get_by_role("dialog", name="Tour")
        visitor.open("/")
        for step, title in enumerate(("What needs you", "The rules", "Alerts, live", "Keys for"), 1):
            expect(tour).to_contain_text(title)
            expect(tour).to_contain_text(f"{step} of 4")
            expect(tour).to_be_focused()
            if step < 4:
                page.get_by_role("button", name="Next").click()
        assert visitor.violations() == []
        visitor.picture("tour-of-a-viewer", whole=False)
        page.keyboard.press("Escape")
        expect(tour).to_be_hidden()
        visitor.open("/")
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        expect(tour).to_be_hidden()
