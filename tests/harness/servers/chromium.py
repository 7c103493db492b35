"""Chromium, as a person uses it: pages of a console, their pictures, and what the browser complains about."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal  # answers of scripts are JSON of any content

import pytest
from playwright.sync_api import Browser, Error, Page, sync_playwright

from headgate.web.server import ConsoleServer

PICTURES = Path(__file__).parents[3] / "build" / "console"
Theme = Literal["light", "dark"]
DESKTOP, PHONE = (1280, 900), (390, 844)
_WAIT_MS = 20_000
#: Rules of WCAG 2.2, levels A and AA.
_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
#: Those of them that depend on the theme or on the size of the screen.
LOOK_RULES = ("color-contrast", "target-size", "scrollable-region-focusable")
_AXE = "async (only) => (await axe.run(document, {runOnly: only, resultTypes: ['violations']}))"


#: A folder for the pictures of docs/console.md (make console-pictures). None: no picture is taken; each takes a third
#: of a second of processor time.
DOCS = os.environ.get("HEADGATE_JOURNEY_PICTURES")
#: The pictures of the docs by the names that journeys give them.
IN_DOCS = {
    "page-overview-light": "overview",
    "page-decision-light": "decision",
    "j1-completion": "completion",
    "j1-red-test": "red-test",
    "j1-events-like-this": "events-like-this",
    "j2-back-test": "back-test",
    "j3-trial": "trial",
    "j4-review": "review",
    "j6-why-not": "why-not",
    "j7-repair": "dead-letter",
    "j10-rules": "phone",
    "release-review": "release",
}
#: Draws a picture and gives it as WebP: a tenth of the bytes.
_TO_WEBP = """async (png) => {
  const picture = new Image();
  picture.src = `data:image/png;base64,${png}`;
  await picture.decode();
  const canvas = document.createElement("canvas");
  canvas.width = picture.width, canvas.height = picture.height;
  canvas.getContext("2d").drawImage(picture, 0, 0);
  return canvas.toDataURL("image/webp", 0.8).split(",")[1];
}"""
#: The tour was left before; a page without an origin keeps nothing.
_TOUR_LEFT = "try { localStorage.setItem('headgate-tour', 'left'); } catch { }"


@dataclass
class Visitor:
    """A person in a browser. ``complaints``: errors and warnings of the browser's console."""

    page: Page
    server: ConsoleServer
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        """Open a page of the console."""
        answer = self.page.goto(f"{self.server.address}{path}")
        assert answer is not None
        assert answer.ok, f"{path}: {answer.status}"

    def picture(self, name: str, *, whole: bool = True) -> None:
        """Keep a picture of the whole page, or of what is in view, if pictures are asked for."""
        if DOCS is None:
            return
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.evaluate("scrollTo(0, 0)")
        png = self.page.screenshot(path=PICTURES / f"{name}.png", full_page=whole)
        if name in IN_DOCS:
            empty = self.page.context.new_page()
            webp = str(empty.evaluate(_TO_WEBP, base64.b64encode(png).decode()))
            empty.close()
            (Path(DOCS) / f"{IN_DOCS[name]}.webp").write_bytes(base64.b64decode(webp))

    def theme(self, theme: Theme) -> None:
        """Prefer dark or light."""
        self.page.emulate_media(color_scheme=theme)

    def look(self, size: tuple[int, int], theme: Theme) -> None:
        """Give the open page another size of the screen and another theme."""
        self.page.set_viewport_size({"width": size[0], "height": size[1]})
        self.theme(theme)
        # Colours change in steps: what is looked at in between has the contrast of neither theme.
        self.page.evaluate("Promise.all(document.getAnimations().map(one => one.finished.catch(() => null)))")

    def is_too_wide(self) -> bool:
        """Return whether the page scrolls sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))

    def violations(self, rules: Sequence[str] = ()) -> list[str]:
        """Return what axe finds on the page: the rule, and the first elements that break it. ``rules``: all without."""
        only: dict[str, object] = {"type": "rule", "values": [*rules]} if rules else {"type": "tag", "values": _TAGS}
        try:
            return self._look_with_axe(only)
        except Error:  # a page that loads itself again did so meanwhile
            self.page.wait_for_load_state()
            return self._look_with_axe(only)

    def _look_with_axe(self, only: dict[str, object]) -> list[str]:
        if not self.page.evaluate("'axe' in window"):
            source = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
            self.page.evaluate(source)
        found: dict[str, Any] = self.page.evaluate(_AXE, only)
        return [
            f"{one['id']}: {node['target']} {node['failureSummary']}"
            for one in found["violations"]
            for node in one["nodes"][:3]
        ]


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start Debian's Chromium; skip the test without one."""
    program = os.environ.get("HEADGATE_CHROMIUM") or shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium on the PATH, and HEADGATE_CHROMIUM names none")
    with sync_playwright() as playwright:
        # a container runs as root, where Chromium has no sandbox
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def visit(
    browser: Browser,
    server: ConsoleServer,
    size: tuple[int, int] = DESKTOP,
    theme: Theme = "light",
    *,
    tour: bool = False,
) -> Iterator[Visitor]:
    """Open the console's printed address as a new person. Fails in the end if the browser has complained. ``tour``:
    the person has not taken or left the tour yet."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)
    if not tour:
        context.add_init_script(_TOUR_LEFT)
    context.set_default_timeout(_WAIT_MS)
    visitor = Visitor(context.new_page(), server)
    visitor.page.on("console", lambda one: visitor.complaints.append(f"{one.type}: {one.text}"))
    visitor.page.on("pageerror", lambda error: visitor.complaints.append(str(error)))
    try:
        visitor.page.goto(server.open_address())
        visitor.page.goto("about:blank")  # the overview would load itself again while a test prepares
        yield visitor
        assert visitor.complaints == []
    finally:
        context.close()
