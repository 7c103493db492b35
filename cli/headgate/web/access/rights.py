"""The rights of a person: roles, each for some apps, tags and owners."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headgate.web.access.roles import Role
from headgate.web.access.settings import GrantSettings

EVERYBODY = "*"
_BY_RANK = (Role.ADMIN, Role.APPROVER, Role.PUBLISHER, Role.AUTHOR, Role.OPERATOR, Role.VIEWER)


@dataclass(frozen=True, slots=True)
class Grant:
    """A role. Empty ``apps``, ``tags`` and ``owners``: for all. Tags and owners limit changes; reading is by app."""

    role: Role
    apps: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()

    def holds_in(self, app: str | None) -> bool:
        """Return whether it is about an app. None: a route about no app, for which any grant is enough."""
        return app is None or not self.apps or app in self.apps

    def covers(self, tags: Iterable[str], owner: str) -> bool:
        """Return whether it is about rules with these tags and this owner."""
        of_tags = not self.tags or not set(tags).isdisjoint(self.tags)
        return of_tags and (not self.owners or owner in self.owners)


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """Who sends a request. ``issuer``: who has issued the token; empty on a person's own machine. ``with_cookie``: a
    browser sends it by itself, so the origin of a change is checked. ``ends_s``: when it ends, in epoch seconds."""

    subject: str
    grants: tuple[Grant, ...]
    with_cookie: bool = True
    issuer: str = ""
    ends_s: float | None = None
    #: Whether a program may send it without an origin: a proxy adds it to the requests of both.
    by_proxy: bool = False

    @classmethod
    def local(cls, subject: str, role: Role, *, with_cookie: bool = True) -> ConsoleSession:
        """Return the session of the person of this machine."""
        return cls(subject, (Grant(role),), with_cookie)

    @property
    def person(self) -> tuple[str, str]:
        """Who this is: the issuer and its subject."""
        return self.issuer, self.subject

    def has_ended(self, now_s: float) -> bool:
        """Return whether its time is over."""
        return self.ends_s is not None and self.ends_s <= now_s

    def role_in(self, app: str | None) -> Role | None:
        """Return the highest role in an app; None without any."""
        held = {one.role for one in self.grants if one.holds_in(app)}
        return next((role for role in _BY_RANK if role in held), None)

    @property
    def role(self) -> Role | None:
        """The highest role in any app."""
        return self.role_in(None)

    def may(self, needed: Role, app: str | None) -> bool:
        """Return whether some grant gives the role in an app."""
        return any(one.role.includes(needed) and one.holds_in(app) for one in self.grants)

    def may_change(self, needed: Role, app: str, tags: Iterable[str], owner: str) -> bool:
        """Return whether a grant gives the role for rules with these tags and this owner."""
        wanted = tuple(tags)
        return any(one.role.includes(needed) and one.holds_in(app) and one.covers(wanted, owner) for one in self.grants)


def find_grants(grants: Sequence[GrantSettings], subject: str, groups: Iterable[str]) -> tuple[Grant, ...]:
    """Return the grants of a person."""
    named = {*groups, EVERYBODY}
    return tuple(
        Grant(one.role, one.apps, one.tags, one.owners)
        for one in grants
        if subject in one.subjects or not named.isdisjoint(one.groups)
    )
