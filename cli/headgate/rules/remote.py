"""The rules of an app through the API of a console (``--server URL``), with the values that the commands show.

The console decides who may what, and writes the records; a change names what was read (``If-Match``), so nobody's
change is lost silently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final  # bodies are JSON of any content
from urllib.parse import quote, urlencode

from headgate.dead_letters.model import DeadLetter, DeadLetterFilter, SourcePosition
from headgate.errors import InputError
from headgate.rules.publish import ControlChange, ControlResponse, PublishedChange
from headgate.rules.render import Row
from rulecore.documents.control_keys import APPROVAL_KEY, LIST_KEY, PROPOSAL_KEY, RELEASE_KEY
from rulecore.documents.rule import Rule, canonical_json
from rulecore.documents.scalars import render_time
from rulecore.documents.status import StatusKind, Subject
from streamcore.engine.publication import STREAM_KEY
from streamcore.kafka.control_topic import RecordOffset

if TYPE_CHECKING:
    from rulecore.documents.releases import NamedChanges
    from rulecore.lists.files import ListFile

_TIMEOUT_S: Final = 60.0
_REFUSED: Final = 400
_REJECTED: Final = 409
_PATHS: Final = {Subject.FEATURE: "features", Subject.DECISION_POLICY: "decision-policies"}


@dataclass(frozen=True, slots=True)
class RemoteApp:
    """An app behind a console."""

    address: str
    token: str
    app: str

    def rule_rows(self) -> list[Row]:
        """Return the rows of ``headgate rules list``."""
        names = ("rule", "version", "slot", "mode", "kind", "stream", "severity", "policy", "status", "reason")
        return [tuple(one[name] for name in names) for one in self._pages("rules", "rules")]

    def history_rows(self, rule: str | None) -> list[Row]:
        """Return the rows of ``headgate rules list --history``, in order."""
        names = ("subject", "name", "version", "mode", "status", "release", "why", "reason")
        rows = [
            (
                render_time(one["time_ms"]),
                f"{one['by']} (signed)" if one["signed"] else one["by"],
                *(one[name] for name in names),
            )
            for one in self._pages("history", "changes")
            if rule is None or one["name"] == rule
        ]
        return rows[::-1]

    def list_rows(self) -> list[Row]:
        """Return the rows of ``headgate lists list``."""
        return [
            (
                one["name"],
                one["version"],
                one["owner"],
                one["of"],
                one["value"],
                one["entries"],
                None if one["expires_ms"] is None else render_time(one["expires_ms"]),
            )
            for one in self._send("GET", "lists")[0]
        ]

    def stream_rows(self) -> list[Row]:
        """Return the rows of ``headgate streams list``, of a rules app."""
        return [
            (one["name"], one["version"], one["origin"], len(one["fields"]), one["versions"])
            for one in self._send("GET", "streams")[0]
        ]

    def dead_letters(self, selection: DeadLetterFilter) -> tuple[list[DeadLetter], set[str]]:
        """Return the dead letters that a filter selects, in the order of their topic, and the positions of those that
        were sent again. Bytes that are no text are escaped."""
        found, sent = list[DeadLetter](), set[str]()
        words = "" if selection.reason is None else f"&reason={quote(selection.reason, safe='')}"
        for one in self._pages("dead-letters", "dead_letters", words):
            letter = _dead_letter(one)
            if selection.matches(letter):
                found.append(letter)
                sent |= {letter.position} if one["sent_again"] else set()
        return sorted(found, key=lambda one: (one.partition, one.offset)), sent

    def send_again(self, letter: DeadLetter, value: bytes | None) -> bool:
        """Send a dead letter to its source, with its own bytes or another value; return whether it was sent now.
        ``InputError`` if it cannot be sent, or if the value is no text or null, which its own is not."""
        if value is None and letter.value is not None:
            fault = "a console cannot send null, a tombstone, instead of its value; send it beside the broker"
            raise InputError(f"dead letter {letter.position}: {fault}")
        try:
            body = {"value": None if value == letter.value or value is None else value.decode()}
        except UnicodeDecodeError:
            fault = "its new value is no text, which a console does not take; repair it beside the broker"
            raise InputError(f"dead letter {letter.position}: {fault}") from None
        return bool(self._send("POST", f"dead-letters/{letter.position}/replay", body)[0]["sent"])

    def proposals(self) -> list[dict[str, Any]]:
        """Return the open proposals."""
        found: list[dict[str, Any]] = self._send("GET", "proposals")[0]
        return found

    def upgrades(self) -> dict[str, Any]:
        """Return the upgrades of the app on Kubernetes."""
        found: dict[str, Any] = self._send("GET", "upgrades")[0]
        return found

    def publish(self, rule: Rule, why: str | None, wait_ms: int) -> PublishedChange:
        """Publish a version. ``InputError`` if the console refuses it."""
        change = ControlChange(rule.id, None, rule.id, rule.version)
        return self._publish("rules", {"yaml": canonical_json(rule).decode()}, change, why, wait_ms)

    def change_named(self, change: ControlChange, why: str | None, wait_ms: int) -> PublishedChange:
        """Publish or delete a decision policy or a feature. ``InputError`` if the console refuses it."""
        if change.value is not None:
            return self._publish(_PATHS[change.subject], {"yaml": change.value.decode()}, change, why, wait_ms)
        path = f"{_PATHS[change.subject]}/{quote(change.name, safe='')}"
        words = urlencode({"wait_ms": wait_ms, **({} if why is None else {"why": why})})
        return self._changed("DELETE", f"{path}?{words}", None, {"If-Match": self._etag(path) or '"none"'}, change)

    def publish_list(self, found: ListFile, why: str | None, wait_ms: int) -> PublishedChange:
        """Publish a list with all its entries. ``InputError`` if the console refuses it."""
        change = ControlChange(f"{LIST_KEY}{found.head.list}", None, found.head.list, found.head.version)
        return self._publish("lists", {"yaml": found.text().decode()}, change, why, wait_ms)

    def publish_stream(
        self, document: Mapping[str, Any], topic: str | None, version: int, why: str | None, wait_ms: int
    ) -> PublishedChange:
        """Publish a stream's document. ``InputError`` if the console refuses it."""
        name = str(document["name"])
        change = ControlChange(f"{STREAM_KEY}{name}", None, name, version)
        return self._publish("streams", {"document": document, "topic": topic}, change, why, wait_ms)

    def _publish(
        self, kind: str, content: Mapping[str, Any], change: ControlChange, why: str | None, wait_ms: int
    ) -> PublishedChange:
        path = f"{kind}/{quote(change.name, safe='')}"
        etag = self._etag(path)
        terms = {"If-None-Match": "*"} if etag is None else {"If-Match": etag}
        return self._changed("PUT", path, {**content, "why": why, "wait_ms": wait_ms}, terms, change)

    def roll_back(self, rule: str, to: int | None, why: str | None, wait_ms: int) -> PublishedChange:
        """Go back to an earlier version."""
        path = f"rules/{quote(rule, safe='')}"
        terms = {"If-Match": self._etag(path) or '"none"'}
        body = {"to": to, "why": why, "wait_ms": wait_ms}
        return self._changed("POST", f"{path}/rollback", body, terms, ControlChange(rule, None, rule))

    def release(
        self,
        name: str,
        rules: Sequence[Rule],
        deleted: Sequence[str],
        named: NamedChanges,
        why: str | None,
        wait_ms: int,
    ) -> PublishedChange:
        """Publish rules, features, policies and deletions as one release. ``InputError`` if the console refuses it."""
        documents = [*named.features, *rules, *named.decision_policies]
        text = {
            "yaml": "\n---\n".join(one.canonical_json().decode() for one in documents),
            "delete": [*deleted],
            "delete_policies": [*named.delete_policies],
            "delete_features": [*named.delete_features],
        }
        review = self._send("POST", "release-review", text)[0]
        body = {**text, "name": name, "why": why, "wait_ms": wait_ms}
        change = ControlChange(f"{RELEASE_KEY}{name}", None, name)
        return self._changed("POST", "releases", body, {"If-Match": review["etag"]}, change)

    def roll_back_release(self, release: str, why: str | None, wait_ms: int) -> PublishedChange:
        """Publish the rules before a release in one step. ``InputError`` if the console refuses it."""
        path = f"releases/{quote(release, safe='')}"
        terms = {"If-Match": self._etag(path) or '"none"'}
        undo = f"undo-{release}"[:80]
        change = ControlChange(f"{RELEASE_KEY}{undo}", None, undo)
        return self._changed("POST", f"{path}/rollback", {"why": why, "wait_ms": wait_ms}, terms, change)

    def propose(
        self, rules: Sequence[Rule], deleted: Sequence[str], why: str, wait_ms: int, *, emergency: bool
    ) -> PublishedChange:
        """Propose rules in the name of the token's person."""
        text = "\n---\n".join(canonical_json(rule).decode() for rule in rules)
        body = {"yaml": text, "delete": [*deleted], "why": why, "wait_ms": wait_ms, "emergency": emergency}
        return self._changed("POST", "proposals", body, {}, ControlChange(PROPOSAL_KEY, None, ""))

    def decide(self, proposal: str, why: str, wait_ms: int, *, refuse: bool) -> PublishedChange:
        """Approve or refuse a proposal in the name of the token's person."""
        body = {"verdict": "refuse" if refuse else "approve", "why": why, "wait_ms": wait_ms}
        change = ControlChange(f"{APPROVAL_KEY}{proposal}", None, proposal)
        return self._changed("POST", f"proposals/{quote(proposal, safe='')}/decision", body, {}, change)

    # --- HTTP ---------------------------------------------------------------------------------------------------

    def _changed(
        self, method: str, path: str, body: object, terms: Mapping[str, str], change: ControlChange
    ) -> PublishedChange:
        found, status = self._send(method, path, body, terms, accepts=_REJECTED)
        if status == _REJECTED:
            found = {"status": StatusKind.REJECTED.value, "reason": found["detail"], "offset": -1}
        name = change.name or found.get("proposal", "")
        version = found.get("version") or change.version
        known = ControlChange(change.key, None, name, version)
        position = RecordOffset(0, found["offset"])
        if found["status"] is None:
            return PublishedChange(known, position, None)
        response = ControlResponse(
            name, version, found["status"], found["reason"], position, known.subject, batch=found.get("batch")
        )
        return PublishedChange(known, position, response)

    def _etag(self, path: str) -> str | None:
        answer = self._request("GET", path)
        if answer.status_code == 404:  # no such rule, list or stream
            return None
        _check(answer)
        return str(answer.headers["ETag"])

    def _pages(self, path: str, entry: str, words: str = "") -> Iterator[dict[str, Any]]:
        cursor = ""
        while True:
            found, _ = self._send("GET", f"{path}?limit=200{words}{cursor}")
            yield from found[entry]
            if found["next"] is None:
                return
            cursor = f"&cursor={quote(found['next'], safe='')}"

    def _send(
        self, method: str, path: str, body: object = None, terms: Mapping[str, str] | None = None, accepts: int = 0
    ) -> tuple[Any, int]:
        answer = self._request(method, path, body, terms)
        if answer.status_code != accepts:
            _check(answer)
        return answer.json(), answer.status_code

    def _request(self, method: str, path: str, body: Any = None, terms: Mapping[str, str] | None = None) -> Any:
        import requests

        address = f"{self.address}/api/v1/apps/{quote(self.app, safe='')}/{path}"
        headers = {"Authorization": f"Bearer {self.token}", **(terms or {})}
        try:
            return requests.request(
                method, address, json=body, headers=headers, timeout=_TIMEOUT_S, allow_redirects=False
            )
        except requests.RequestException as error:
            raise InputError(f"--server {self.address}: no answer: {type(error).__name__}") from None


def _dead_letter(one: Mapping[str, Any]) -> DeadLetter:
    """Return a dead letter of the API; its headers stay with the console."""
    partition, _, offset = one["at"].partition("/")
    source = None
    if one["source"] is not None:
        topic, number, at = one["source"].rsplit(":", 2)
        source = SourcePosition(topic, int(number), int(at))
    key, value = (None if one[name] is None else one[name].encode() for name in ("key", "value"))
    return DeadLetter(int(partition), int(offset), one["time_ms"], one["code"], one["reason"], key, value, source)


def _check(answer: Any) -> None:
    """Raise ``InputError`` with the console's own words if it refuses a request."""
    if answer.status_code < _REFUSED and answer.headers.get("Content-Type", "").startswith("application/json"):
        return
    try:
        found = answer.json()
        places = [f"{one['path']}: {one['message']}" for one in found.get("problems", ())]
        raise InputError("\n".join([f"the console refuses this ({found['code']}): {found['detail']}", *places]))
    except (ValueError, KeyError, TypeError):
        raise InputError(f"--server: no console answers there (status {answer.status_code})") from None
