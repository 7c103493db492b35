"""The frame around the content of a page."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.web.access.roles import Role

SECTIONS = (
    "overview",
    "rules",
    "alerts",
    "decisions",
    "keys",
    "dead letters",
    "releases",
    "decision policies",
    "features",
    "lists",
    "streams",
    "health",
    "upgrades",
    "access",
    "audit",
)


@dataclass(frozen=True, slots=True)
class Frame:
    """``app``: the app of the page; None on a page about all. ``section``: the entry of the navigation. ``command``:
    the command that does the same. ``now_ms``: the clock, for ages. ``notice``: the outcome of the change before."""

    apps: tuple[str, ...]
    app: str | None
    section: str
    title: str
    subject: str
    role: Role
    now_ms: int
    command: str = ""
    notice: str = ""

    def may(self, role: str) -> bool:
        """Return whether the session has the rights of this role."""
        return self.role.includes(Role(role))

    @property
    def home(self) -> str:
        """The app that the navigation leads to."""
        return self.app or next(iter(self.apps), "")
