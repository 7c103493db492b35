"""J8: an upgrade that fails and rolls back is on the time line; a recorded one, and one that happens meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from headgate.web.server import ConsoleServer, running
from headgate.web.settings import ConsoleApp, ConsoleSettings
from headgate_operator.runtime.api_client import Json, Rest
from headgate_operator.runtime.api_paths import path
from headgate_operator.runtime.manager import Manager, Settings
from headgate_operator.runtime.metrics import Counters
from tests.harness.apps.console_shop import ConsoleShop
from tests.harness.operator.api_server import app_manifest, until
from tests.harness.operator.driver import Image
from tests.harness.operator.fixtures import _kubeconfig, _kubelet, _namespace, _rest
from tests.harness.operator.kubelet import Kubelet
from tests.harness.servers.chromium import DESKTOP, PHONE, Theme, Visitor, visit
from tests.harness.servers.recorded_api_server import GROUP, recorded_answers, serve_answers

__all__ = ["_kubeconfig", "_kubelet", "_namespace", "_rest"]
pytestmark = pytest.mark.kafka
_WITHIN_S = 120.0


@contextmanager
def console(shop: ConsoleShop, stream_app: str, kubeconfig: Path) -> Iterator[ConsoleServer]:
    apps = (ConsoleApp(name=shop.name, stream_app=stream_app),)
    with running(ConsoleServer(ConsoleSettings(kafka=shop.kafka, apps=apps, port=0, kubeconfig=kubeconfig))) as server:
        yield server


def check_the_roll_back(visitor: Visitor, number: int) -> None:
    """The upgrade stands on top, marked, with its reason; its bars end in the way back."""
    row = visitor.page.locator(".upgrades > li").first
    expect(row.locator("summary")).to_contain_text(re.compile(rf"{number}\s+upgrade 2 → 3"))
    expect(row.locator(".tag")).to_have_text("RolledBack")
    assert row.locator("svg.gantt rect.back").count() >= 1
    expect(row.locator(".inside")).to_contain_text("Correct the cause")
    expect(row.locator("tbody th", has_text="RollingBack").first).to_be_visible()


@pytest.mark.parametrize(("size", "theme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_j8_a_roll_back_that_was_recorded_is_on_the_time_line(
    shop: ConsoleShop, browser: Browser, tmp_path: Path, size: tuple[int, int], theme: Theme
) -> None:
    raw, savepoints = recorded_answers()
    answers = {f"{GROUP}/streams/streamapps/rules": raw, f"{GROUP}/streams/savepoints": {"items": savepoints}}
    with (
        serve_answers(answers, tmp_path) as kubeconfig,
        console(shop, "streams/rules", kubeconfig) as server,
        visit(browser, server, size, theme) as visitor,
    ):
        visitor.open(shop.home)
        visitor.page.keyboard.press("g")
        visitor.page.keyboard.press("u")
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Upgrades")
        check_the_roll_back(visitor, 3)
        visitor.picture(f"j8-rolled-back-{theme}-{size[0]}")
        assert visitor.violations() == []
        assert not visitor.is_too_wide()
        second = visitor.page.locator(".upgrades > li").nth(1)
        second.locator("summary").focus()
        visitor.page.keyboard.press("Enter")
        expect(second.locator("tbody th", has_text="Proving")).to_be_visible()


def test_j8_an_upgrade_fails_and_rolls_back_while_a_person_looks(
    shop: ConsoleShop, browser: Browser, kubeconfig: str, rest: Rest, namespace: str, kubelet: Kubelet
) -> None:
    operator = Manager(Rest(kubeconfig, Counters()), Counters(), Settings(namespace, resync_s=2.0))
    operator.start()
    kubelet.images["sim:3"] = Image("sim:3", "crashes-soon")

    def status() -> Json:
        found: Json = rest.get(path("streamapps", namespace, "rules")).get("status", {})
        return found

    try:
        rest.post(path("streamapps", namespace), app_manifest(namespace))
        until(lambda: status().get("phase") == "Stable", _WITHIN_S)
        rest.merge(path("streamapps", namespace, "rules"), {"spec": {"image": "sim:2"}})
        until(lambda: status().get("version") == "2" and status()["phase"] == "Stable", _WITHIN_S)
        with console(shop, f"{namespace}/rules", Path(kubeconfig)) as server, visit(browser, server) as visitor:
            visitor.open(f"{shop.home}/upgrades")
            expect(visitor.page.locator(".upgrades > li").first.locator(".tag")).to_have_text("Succeeded")
            rest.merge(path("streamapps", namespace, "rules"), {"spec": {"image": "sim:3"}})
            expect(visitor.page.locator(".upgrades > li")).to_have_count(3, timeout=40_000)  # it loads itself again
            visitor.picture("j8-under-way")
            until(lambda: status()["phase"] == "RolledBack", _WITHIN_S)
            expect(visitor.page.locator(".head .tag")).to_have_text("RolledBack", timeout=40_000)
            check_the_roll_back(visitor, 3)
            visitor.picture("j8-rolled-back-live")
    finally:
        operator.stop()
