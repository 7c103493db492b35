"""The values that the API answers with and the pages show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from headgate.web.problems import ProblemPlace
from rulecore.explain.condition import Clause, show_value


class Value(BaseModel):
    """A value of the API: immutable, every entry described."""

    model_config = ConfigDict(frozen=True)


class VersionValue(Value):
    """One version of a rule in a slot."""

    rule: Annotated[str, Field(description="Id of the rule.")]
    version: Annotated[int, Field(description="Number of the version.")]
    slot: Annotated[str, Field(description="live, candidate, scheduled or draft.")]
    mode: Annotated[str, Field(description="live, shadow, canary 10%, paused, draft or retired.")]
    kind: Annotated[str, Field(description="event, feature, window, sequence, absence or score.")]
    stream: Annotated[str, Field(description="The stream, or several joined by +.")]
    severity: Annotated[str, Field(description="How severe an alert is.")]
    owner: Annotated[str, Field(description="Who is responsible.")]
    tags: Annotated[tuple[str, ...], Field(description="Free labels.")]
    description: Annotated[str, Field(description="Why the rule exists.")]
    tests: Annotated[int, Field(description="Number of its tests.")]
    status: Annotated[str | None, Field(description="The app's last answer about the version; null: none yet.")]
    reason: Annotated[str | None, Field(description="The reason that the app gave.")]
    policy: Annotated[
        str | None,
        Field(description="The decision policy that merges it with others; null: it is in no decision."),
    ]
    quarantined: Annotated[str | None, Field(description="Why the version is in quarantine; null: it is not.")]
    published_ms: Annotated[int | None, Field(description="When the version was published, in epoch milliseconds.")]
    by: Annotated[str | None, Field(description="Who published it.")]


class ChangeValue(Value):
    """One change of the control topic and its outcome."""

    offset: Annotated[int, Field(description="Offset of the control record.")]
    time_ms: Annotated[int, Field(description="When it was written, in epoch milliseconds.")]
    by: Annotated[str | None, Field(description="Who has signed and approved it; else the author that it names.")]
    signed: Annotated[bool, Field(description="Whether `by` is proven by signatures.")]
    subject: Annotated[str, Field(description="rule, release, list, stream, proposal, approval, policy, ...")]
    name: Annotated[str, Field(description="Id or name of the subject.")]
    version: Annotated[int | None, Field(description="Its version, if it has one.")]
    mode: Annotated[str | None, Field(description="Mode of the rule.")]
    status: Annotated[str, Field(description="accepted, rejected, deleted, ...")]
    answered: Annotated[bool, Field(description="Whether the app itself has answered; else computed from the log.")]
    release: Annotated[str | None, Field(description="The release that the rule came with.")]
    why: Annotated[str | None, Field(description="The author's reason.")]
    reason: Annotated[str | None, Field(description="The reason of a rejection.")]


class TrialValue(Value):
    """A version on trial beside the live one: how often each fired."""

    version: Annotated[int | None, Field(description="The version on trial.")]
    counts: Annotated[Mapping[str, int], Field(description="Firings by name, as the app has reported them last.")]


class RuleValue(Value):
    """A rule: its versions in slots, the newest document and its trial."""

    rule: Annotated[str, Field(description="Id of the rule.")]
    etag: Annotated[str, Field(description="For If-Match: it changes with every control record about the rule.")]
    slots: Annotated[tuple[VersionValue, ...], Field(description="Its versions in slots.")]
    newest: Annotated[int, Field(description="The highest version that was ever accepted; 0: none.")]
    versions: Annotated[tuple[int, ...], Field(description="All versions that were accepted.")]
    document: Annotated[dict[str, JsonValue], Field(description="The newest version in a slot, without defaults.")]
    yaml: Annotated[str, Field(description="The same as YAML, as people write it.")]
    trial: Annotated[TrialValue | None, Field(description="The comparison of a version on trial.")]


class DocumentValue(Value):
    """One version of a rule."""

    rule: Annotated[str, Field(description="Id of the rule.")]
    version: Annotated[int, Field(description="Number of the version.")]
    document: Annotated[dict[str, JsonValue], Field(description="The version, without defaults.")]
    yaml: Annotated[str, Field(description="The same as YAML, as people write it.")]


class ListValue(Value):
    """A list of an app."""

    name: Annotated[str, Field(description="Name of the list.")]
    version: Annotated[int, Field(description="Its version.")]
    owner: Annotated[str, Field(description="Who is responsible.")]
    description: Annotated[str, Field(description="Why it exists.")]
    of: Annotated[str, Field(description="Type of its entries.")]
    value: Annotated[str | None, Field(description="Type of the value of each entry, if they have one.")]
    entries: Annotated[int | None, Field(description="Number of entries; null if they cannot be counted.")]
    expires_ms: Annotated[int | None, Field(description="When it ends, in epoch milliseconds.")]
    rules: Annotated[tuple[str, ...], Field(description="Rules that use it.")]


class FieldValue(Value):
    """A field of a stream."""

    name: Annotated[str, Field(description="Name of the field.")]
    type: Annotated[str, Field(description="Its type.")]


class StreamValue(Value):
    """A stream that rules may read."""

    name: Annotated[str, Field(description="Name of the stream.")]
    version: Annotated[int, Field(description="Version of its document.")]
    event_time: Annotated[str, Field(description="The field with the event time.")]
    keys: Annotated[tuple[tuple[str, ...], ...], Field(description="The keys that events are routed by.")]
    fields: Annotated[tuple[FieldValue, ...], Field(description="Its fields.")]
    rules: Annotated[tuple[str, ...], Field(description="Rules that read it.")]
    versions: Annotated[int, Field(description="Versions of rules that read it.")]
    origin: Annotated[str, Field(description="file, or published: its document came while the app ran.")]


class AlertValue(Value):
    """One alert on the alerts or the shadow lane."""

    alert_id: Annotated[str, Field(description="Id: a hash of rule, version and what fired.")]
    rule: Annotated[str, Field(description="Id of the rule.")]
    version: Annotated[int, Field(description="Its version.")]
    severity: Annotated[str, Field(description="How severe it is.")]
    message: Annotated[str, Field(description="Its text.")]
    key: Annotated[dict[str, JsonValue], Field(description="The key that it is about.")]
    event_time_ms: Annotated[int, Field(description="Event time, in epoch milliseconds.")]
    raised_ms: Annotated[int, Field(description="When its record was written, in epoch milliseconds.")]
    lane: Annotated[str, Field(description="alerts, or shadow for a version on trial.")]
    partition: Annotated[int, Field(description="Partition of its record.")]
    offset: Annotated[int, Field(description="Offset of its record.")]
    body: Annotated[dict[str, JsonValue], Field(description="The whole alert, as on its topic.")]


class DeadLetterValue(Value):
    """A record that the app has rejected."""

    at: Annotated[str, Field(description="Its position in the dead-letter topic, partition/offset.")]
    time_ms: Annotated[int, Field(description="When it was rejected, in epoch milliseconds.")]
    code: Annotated[str, Field(description="The code of the reason, see docs/reference/codes.md.")]
    reason: Annotated[str, Field(description="Why it was rejected.")]
    source: Annotated[str | None, Field(description="Where the record is, topic:partition:offset.")]
    key: Annotated[str | None, Field(description="Its key; bytes that are no text are escaped.")]
    value: Annotated[str | None, Field(description="Its value; bytes that are no text are escaped.")]
    sent_again: Annotated[bool, Field(description="Whether it was sent again.")]


class CodeCount(Value):
    """Dead letters with one code."""

    code: Annotated[str, Field(description="The code.")]
    count: Annotated[int, Field(description="Their number, among the records that were read.")]
    latest_ms: Annotated[int, Field(description="The time of the latest.")]
    example: Annotated[str, Field(description="The reason of the latest.")]
    at: Annotated[str, Field(description="The position of the latest.")]


class ProcessValue(Value):
    """The status that the app's process reports."""

    phase: Annotated[str, Field(description="starting, standby, running, draining, drained, failed or unknown.")]
    runs: Annotated[bool, Field(description="Whether the process is at work and was heard of in the last 30 s.")]
    age_s: Annotated[float, Field(description="Seconds since its last word.")]
    epoch: Annotated[int, Field(description="Epoch of its checkpoint.")]
    batch: Annotated[int, Field(description="The last batch that it committed; -1 before the first.")]
    lag_rows: Annotated[int, Field(description="Records of its inputs that wait.")]
    lag_s: Annotated[float, Field(description="Age of the oldest of them, in seconds.")]
    busy_percent: Annotated[int, Field(description="Share of the time that its last batches took.")]
    watermark_ms: Annotated[int | None, Field(description="Its watermark, in epoch milliseconds.")]
    message: Annotated[str, Field(description="What it waits for, or why it failed.")]


class Need(Value):
    """Something that needs a person. ``command``: the command that shows or mends it."""

    level: Annotated[str, Field(description="bad, warn or info.")]
    what: Annotated[str, Field(description="What is the matter.")]
    detail: Annotated[str, Field(description="The reason, or what to do.")]
    path: Annotated[str, Field(description="The page about it.")]
    command: Annotated[str, Field(description="The command that does the same.")]


class AppValue(Value):
    """An app: its process, its figures and the matters that need a person."""

    app: Annotated[str, Field(description="Name of the app.")]
    process: Annotated[ProcessValue | None, Field(description="Null: no settings file is given, or it never ran.")]
    rules: Annotated[Mapping[str, int], Field(description="Number of versions by mode.")]
    epoch: Annotated[int, Field(description="Epoch of the rule set: the changes of live and candidate versions.")]
    alerts_per_minute: Annotated[
        tuple[int, ...], Field(description="Alerts written in each of the last 60 minutes, the oldest first.")
    ]
    alerts_cut: Annotated[bool, Field(description="Whether there were more alerts than one search reads.")]
    dead_letters: Annotated[tuple[CodeCount, ...], Field(description="Dead letters by code.")]
    needs: Annotated[tuple[Need, ...], Field(description="What needs a person, the worst first.")]


class Page(Value):
    """The entries of every page of a list."""

    next: Annotated[str | None, Field(description="Cursor of the next page; null: there is none.")] = None


class RulePage(Page):
    """A page of rules."""

    rules: tuple[VersionValue, ...]
    total: Annotated[int, Field(description="Number of versions that the filter selects.")]


class ChangePage(Page):
    """A page of changes, the newest first."""

    changes: tuple[ChangeValue, ...]


class AlertPage(Page):
    """A page of alerts, the newest first."""

    alerts: tuple[AlertValue, ...]
    read: Annotated[int, Field(description="Records that were read. A search ends at `scan_records`; go on with next.")]


class DeadLetterPage(Page):
    """A page of dead letters, the newest first, and the counts by code."""

    dead_letters: tuple[DeadLetterValue, ...]
    codes: tuple[CodeCount, ...]
    read: Annotated[int, Field(description="Records that were read for the counts.")]


class ClauseValue(Value):
    """A clause of a condition, with the values that it saw."""

    text: Annotated[str, Field(description="The clause, such as `amount >= 500`.")]
    truth: Annotated[str, Field(description="TRUE, FALSE or NULL.")]
    decided: Annotated[bool, Field(description="Whether the truth of the whole condition depends on it.")]
    values: Annotated[Mapping[str, str], Field(description="What its columns and computed parts were.")] = {}
    note: Annotated[str, Field(description="Why it is NULL.")] = ""

    @classmethod
    def of(cls, clause: Clause) -> ClauseValue:
        """Return a clause without parts as a value."""
        values = {one.text: show_value(one.value, one.type) for one in clause.seen}
        return cls(text=clause.text, truth=clause.truth.value, decided=clause.decided, values=values, note=clause.note)


class ConditionValue(Value):
    """A condition of a rule on an event of a test."""

    event: Annotated[int, Field(description="Number of the event in the test, from 1.")]
    condition: Annotated[str, Field(description="where, having, expect or step NAME.")]
    truth: Annotated[str, Field(description="TRUE, FALSE or NULL.")]
    clauses: Annotated[tuple[ClauseValue, ...], Field(description="Its clauses, in the order of the text.")]


class TestValue(Value):
    """The result of one test of a rule."""

    __test__ = False  # pytest: not a class of tests

    name: Annotated[str, Field(description="Name of the test.")]
    passed: Annotated[bool, Field(description="Whether the alerts were the expected ones.")]
    diff: Annotated[tuple[str, ...], Field(description="Lines that show the differences.")]
    seen: Annotated[
        tuple[dict[str, JsonValue], ...], Field(description="The alerts that it gave: key, message and values of each.")
    ] = ()
    line: Annotated[int | None, Field(description="Line of the test in the document.")] = None
    why: Annotated[
        tuple[ConditionValue, ...],
        Field(description="Of a failed test: the conditions on its events, with the values."),
    ] = ()


class ReplayValue(Value):
    """The outcome of a dead letter that was to be sent again."""

    at: Annotated[str, Field(description="Its position in the dead-letter topic, partition/offset.")]
    sent: Annotated[
        bool, Field(description="Whether it was sent now; false: it was sent before, and nothing was done.")
    ]
    target: Annotated[str, Field(description="The topic and partition that it went to, topic:partition.")]
    repaired: Annotated[bool, Field(description="Whether its value differs from the rejected one.")]


class ReleasedRule(Value):
    """A rule of a release."""

    rule: Annotated[str, Field(description="Id of the rule.")]
    version: Annotated[int | None, Field(description="The version that the release published; null: it deleted it.")]
    before: Annotated[int | None, Field(description="The version that was live before; null: none.")]
    status: Annotated[str, Field(description="accepted, deleted, ...")]


class ReleasedDocument(Value):
    """A feature or decision policy of a release."""

    subject: Annotated[str, Field(description="feature or decision_policy.")]
    name: Annotated[str, Field(description="Its name.")]
    version: Annotated[int | None, Field(description="The version that the release published; null: it deleted it.")]
    before: Annotated[int | None, Field(description="The version that was in force before; null: none.")]
    status: Annotated[str, Field(description="accepted, deleted, ...")]


class ReleaseValue(Value):
    """A release: rules, features and decision policies that were published together."""

    name: Annotated[str, Field(description="Its name.")]
    etag: Annotated[str, Field(description="For If-Match: it changes with every later change of one of its rules.")]
    offset: Annotated[int, Field(description="Offset of its control record.")]
    time_ms: Annotated[int, Field(description="When it was written, in epoch milliseconds.")]
    by: Annotated[str | None, Field(description="The author that the record names.")]
    why: Annotated[str | None, Field(description="The author's reason.")]
    status: Annotated[str, Field(description="accepted or rejected.")]
    reason: Annotated[str | None, Field(description="The reason of a rejection.")]
    rules: Annotated[tuple[ReleasedRule, ...], Field(description="Its rules.")]
    others: Annotated[tuple[ReleasedDocument, ...], Field(description="Its features and decision policies.")] = ()


class ReviewedRule(Value):
    """A rule of a release that is not published yet."""

    rule: Annotated[str, Field(description="Id of the rule.")]
    before: Annotated[int | None, Field(description="The version that is live now; null: none.")]
    version: Annotated[int | None, Field(description="The version that the release would publish.")]
    fields: Annotated[tuple[dict[str, JsonValue], ...], Field(description="Entries that change: path, old, new.")]
    state: Annotated[tuple[dict[str, JsonValue], ...], Field(description="Its state: kept, new or dropped.")]


class ReviewedDocument(Value):
    """A feature or decision policy of a release that is not published yet."""

    subject: Annotated[str, Field(description="feature or decision_policy.")]
    name: Annotated[str, Field(description="Its name.")]
    before: Annotated[int | None, Field(description="The version that is in force; null: none.")]
    version: Annotated[int | None, Field(description="The version that it would publish; null: it would delete it.")]
    fields: Annotated[tuple[dict[str, JsonValue], ...], Field(description="Entries that change: path, old, new.")]


class ReleaseReviewValue(Value):
    """The changes that a release of some versions would make."""

    etag: Annotated[str, Field(description="For If-Match: it changes with every change of one of the rules.")]
    problems: Annotated[tuple[ProblemPlace, ...], Field(description="Mistakes; with one, nothing is published.")]
    rules: Annotated[tuple[ReviewedRule, ...], Field(description="Its rules; none if there are mistakes.")]
    deleted: Annotated[tuple[str, ...], Field(description="The rules that it would delete.")]
    others: Annotated[tuple[ReviewedDocument, ...], Field(description="Its features and decision policies.")] = ()


class OutcomeValue(Value):
    """The outcome of a change. ``status`` null: the app has not answered in time; the change is on the topic."""

    rule: Annotated[str, Field(description="Id of the rule, or name of the release, list or stream.")]
    version: Annotated[int, Field(description="The version that was published; 0 of a release.")]
    offset: Annotated[int, Field(description="Offset of the control record.")]
    status: Annotated[str | None, Field(description="The app's answer.")]
    reason: Annotated[str | None, Field(description="Its reason.")]
    batch: Annotated[int | None, Field(description="The cut from which it counts.")]
    etag: Annotated[str, Field(description="The new ETag of the rule, list or stream.")]
    repeated: Annotated[bool, Field(description="Whether the same request had been made before, and nothing was done.")]


class ProposedRule(Value):
    """A version that somebody proposes."""

    rule: Annotated[str, Field(description="Id of the rule.")]
    version: Annotated[int, Field(description="The version.")]
    mode: Annotated[str, Field(description="Its mode.")]
    yaml: Annotated[str, Field(description="The rule as text.")]


class ProposalValue(Value):
    """A proposal that waits for approvals, or counts in an emergency."""

    proposal: Annotated[str, Field(description="Its id: the digest of what is proposed.")]
    by: Annotated[str, Field(description="Who has signed it.")]
    at_ms: Annotated[int, Field(description="When it was signed, in epoch milliseconds.")]
    why: Annotated[str, Field(description="The reason.")]
    rules: Annotated[tuple[ProposedRule, ...], Field(description="Versions to publish.")]
    deleted: Annotated[tuple[str, ...], Field(description="Rules to delete.")]
    needs: Annotated[int, Field(description="Number of approvals that it needs.")]
    policies: Annotated[tuple[str, ...], Field(description="The policies that ask for them.")]
    approvals: Annotated[tuple[str, ...], Field(description="Who has approved it.")]
    emergency_until_ms: Annotated[int | None, Field(description="Until when it counts alone; null: it does not.")]


class ProposalOutcome(Value):
    """The outcome of a proposal or an approval. ``status`` null: the app has not answered in time."""

    proposal: Annotated[str, Field(description="Id of the proposal.")]
    offset: Annotated[int, Field(description="Offset of the control record.")]
    status: Annotated[str | None, Field(description="proposed: it waits; accepted: it counts; deleted: refused.")]
    reason: Annotated[str | None, Field(description="What it needs, or how long it counts.")]


class PolicyValue(Value):
    """The approvals that some rules need."""

    policy: Annotated[str, Field(description="Its name.")]
    version: Annotated[int, Field(description="Its version.")]
    tags: Annotated[tuple[str, ...], Field(description="Of rules with one of these tags; empty: of all.")]
    modes: Annotated[tuple[str, ...], Field(description="Modes that need approvals.")]
    approvals: Annotated[int, Field(description="Number of approvals by others.")]
    emergency_hours: Annotated[int, Field(description="Hours for which a version may count alone.")]
    signed: Annotated[bool, Field(description="Whether unsigned changes are refused.")]


class SignerValue(Value):
    """A key whose signatures count."""

    signer: Annotated[str, Field(description="Its name.")]
    subject: Annotated[str | None, Field(description="Whose it is; null: of a console.")]
    role: Annotated[str, Field(description="The highest role that counts.")]
    attests: Annotated[bool, Field(description="Whether it signs for others.")]
    revoked: Annotated[bool, Field(description="Whether it counts no more.")]


class GovernanceValue(Value):
    """Policies, signers and open proposals."""

    policies: Annotated[tuple[PolicyValue, ...], Field(description="Policies in force.")]
    signers: Annotated[tuple[SignerValue, ...], Field(description="Signers.")]
    signs: Annotated[bool, Field(description="Whether this console signs for who is logged in.")]


class GrantValue(Value):
    """A role of the session."""

    role: Annotated[str, Field(description="The role.")]
    apps: Annotated[tuple[str, ...], Field(description="In these apps; empty: in all.")]
    tags: Annotated[tuple[str, ...], Field(description="Changes of rules with these tags only.")]
    owners: Annotated[tuple[str, ...], Field(description="Changes of rules of these owners only.")]


class SessionValue(Value):
    """Who is asking."""

    subject: Annotated[str, Field(description="The person or program.")]
    issuer: Annotated[str, Field(description="Who has issued the token; empty on one's own machine.")]
    grants: Annotated[tuple[GrantValue, ...], Field(description="The roles.")]


class ComparedAlert(Value):
    """An alert that only one of two versions has raised."""

    number: Annotated[int, Field(description="Its number in the comparison.")]
    event_time_ms: Annotated[int, Field(description="Event time, in epoch milliseconds.")]
    key: Annotated[dict[str, JsonValue], Field(description="The key that it is about.")]
    message: Annotated[str, Field(description="Its text.")]
    event: Annotated[str | None, Field(description="The event, topic:partition:offset; null: of a window.")]
    alert_id: Annotated[str | None, Field(description="Its id, if it is on a lane.")] = None


class ComparedBucket(Value):
    """Counts of a piece of time."""

    start_ms: Annotated[int, Field(description="Its start, in epoch milliseconds.")]
    both: Annotated[int, Field(description="Alerts that both versions have raised.")]
    only_new: Annotated[int, Field(description="Alerts that only the new version has raised.")]
    only_live: Annotated[int, Field(description="Alerts that only the live version has raised.")]


class KeyCount(Value):
    """A key and the number of alerts about it."""

    key: Annotated[dict[str, JsonValue], Field(description="The key.")]
    new: Annotated[int, Field(description="Alerts of the new version.")]
    live: Annotated[int, Field(description="Alerts of the live version.")]


class ComparisonValue(Value):
    """The alerts of two versions of a rule on the same events. Two alerts are the same if they are about the same
    event, or about the same key and window."""

    both: Annotated[int, Field(description="Alerts that both versions have raised.")]
    only_new: Annotated[int, Field(description="Alerts that only the new version has raised.")]
    only_live: Annotated[int, Field(description="Alerts that only the live version has raised.")]
    bucket_ms: Annotated[int, Field(description="The length of each piece of time, in milliseconds.")]
    buckets: Annotated[tuple[ComparedBucket, ...], Field(description="The counts over time, without gaps.")]
    keys: Annotated[tuple[KeyCount, ...], Field(description="The keys with the most alerts.")]
    new_alerts: Annotated[tuple[ComparedAlert, ...], Field(description="Some that only the new version has raised.")]
    live_alerts: Annotated[tuple[ComparedAlert, ...], Field(description="Some that only the live version has raised.")]


class BacktestValue(Value):
    """A back-test: a version of a rule over past events, beside the live one."""

    id: Annotated[str, Field(description="Its id, as long as the console runs.")]
    rule: Annotated[str, Field(description="Id of the rule.")]
    version: Annotated[int, Field(description="The version that is tried.")]
    live: Annotated[int | None, Field(description="The live version; null: there is none.")]
    since: Annotated[str, Field(description="How far back it reads, such as 24h.")]
    state: Annotated[str, Field(description="running, done, failed or cancelled.")]
    done: Annotated[int, Field(description="Records that were read.")]
    total: Annotated[int, Field(description="Records to read.")]
    seconds: Annotated[float, Field(description="Seconds that it has taken.")]
    fault: Annotated[str, Field(description="Why it failed.")]
    events: Annotated[int, Field(description="Events among the records.")]
    rejected: Annotated[int, Field(description="Records that are no events.")]
    cut: Annotated[bool, Field(description="Whether the range had more records than a back-test reads.")]
    result: Annotated[ComparisonValue | None, Field(description="The comparison; null: not yet.")]


class TimelineEntry(Value):
    """Something that happened to a key."""

    time_ms: Annotated[int, Field(description="Event time, in epoch milliseconds.")]
    what: Annotated[str, Field(description="event or alert.")]
    title: Annotated[str, Field(description="The stream, or the rule.")]
    text: Annotated[str, Field(description="The values, or the message.")]
    place: Annotated[str, Field(description="Where its record is, topic:partition:offset.")]
    severity: Annotated[str, Field(description="Of an alert.")] = ""
    alert_id: Annotated[str, Field(description="Of an alert.")] = ""


class EntityValue(Value):
    """A key: all that is known of it."""

    column: Annotated[str, Field(description="The column of the key.")]
    value: Annotated[str, Field(description="Its value.")]
    entries: Annotated[tuple[TimelineEntry, ...], Field(description="Events and alerts, the newest first.")]
    lists: Annotated[tuple[str, ...], Field(description="The lists that have it as an entry.")]
    read: Annotated[int, Field(description="Records that were read for its events.")]
    notes: Annotated[tuple[str, ...], Field(description="What could not be read.")]


class ListEntry(Value):
    """An entry of a list."""

    key: Annotated[str, Field(description="The entry.")]
    value: Annotated[str | None, Field(description="Its value, if entries have one.")]


class PartitionHealth(Value):
    """A partition of an input."""

    topic: Annotated[str, Field(description="The topic.")]
    partition: Annotated[int, Field(description="The partition.")]
    position: Annotated[int, Field(description="The next offset that the app reads.")]
    end: Annotated[int, Field(description="The end of the partition.")]
    delay_s: Annotated[float | None, Field(description="How far its watermark is behind the clock; null: not known.")]
    holds_back: Annotated[bool, Field(description="Whether it holds the app's watermark back.")]

    @property
    def lag(self) -> int:
        """The records that wait."""
        return max(0, self.end - self.position)


class PhaseValue(Value):
    """A phase of the app's cuts."""

    name: Annotated[str, Field(description="The phase.")]
    seconds: Annotated[float, Field(description="Mean seconds that a cut spends in it.")]
    cuts: Annotated[int, Field(description="Cuts since the start of the process.")]


class HealthValue(Value):
    """How an app works: its process, its inputs, the phases of its cuts."""

    process: Annotated[ProcessValue | None, Field(description="Null: no settings file is given, or it never ran.")]
    partitions: Annotated[tuple[PartitionHealth, ...], Field(description="Its inputs, the most behind first.")]
    phases: Annotated[tuple[PhaseValue, ...], Field(description="The phases of a cut, the longest first.")]
    notes: Annotated[tuple[str, ...], Field(description="What is not known, and what to do.")]


class UpgradePhaseValue(Value):
    """A phase that an upgrade went through."""

    name: Annotated[str, Field(description="The phase, such as Preflight.")]
    meaning: Annotated[str, Field(description="What happens in it.")]
    part: Annotated[
        str, Field(description="prepare (the old version runs), stop (none runs), prove (the new one runs), or back.")
    ]
    start_ms: Annotated[int, Field(description="When it was entered, in epoch milliseconds.")]
    end_ms: Annotated[int | None, Field(description="When it was left; null: it lasts.")]


class UpgradeValue(Value):
    """An upgrade of an app on Kubernetes: a new release, a first start or a restore."""

    number: Annotated[int, Field(description="Its number, counted from 1.")]
    kind: Annotated[str, Field(description="install, upgrade or restore.")]
    from_version: Annotated[str, Field(description="The version before; empty: there was none.")]
    to_version: Annotated[str, Field(description="The version that it leads to.")]
    started_ms: Annotated[int, Field(description="When it began, in epoch milliseconds.")]
    ended_ms: Annotated[int | None, Field(description="When it ended; null: it is in progress.")]
    outcome: Annotated[str, Field(description="How it ended; empty: it is in progress.")]
    meaning: Annotated[str, Field(description="The outcome in words.")]
    remedy: Annotated[str, Field(description="What to do after an outcome that is no success.")]
    rolled_back: Annotated[bool, Field(description="Whether it was rolled back.")]
    reason: Annotated[str, Field(description="Reason of the outcome, one word.")]
    message: Annotated[str, Field(description="Reason of the outcome, for people.")]
    savepoint: Annotated[str, Field(description="The savepoint that the old version wrote; empty: none.")]
    phases: Annotated[tuple[UpgradePhaseValue, ...], Field(description="Its phases, in order.")]
    stops: Annotated[bool, Field(description="Whether a version ran before that had to stop.")]

    def stopped_ms(self, now_ms: int) -> int:
        """Return how long at most no version ran, in milliseconds: from the request to stop to the first batch."""
        away = (one for one in self.phases if one.part == "stop" or (one.part == "back" and one.name != "Proving"))
        return sum((now_ms if one.end_ms is None else one.end_ms) - one.start_ms for one in away) if self.stops else 0


class ClusterSavepoint(Value):
    """A savepoint of an app on Kubernetes."""

    name: Annotated[str, Field(description="Its name.")]
    reason: Annotated[str, Field(description="Who or what requested it, such as manual or upgrade.")]
    phase: Annotated[str, Field(description="Pending, Writing, Complete or Failed.")]
    batch: Annotated[int | None, Field(description="The last cut that is in it; null: not yet.")]
    epoch: Annotated[int | None, Field(description="Epoch of the checkpoint; null: not yet.")]
    completed_ms: Annotated[int | None, Field(description="When it was complete; null: it is not.")]
    bytes: Annotated[int, Field(description="Size of its files.")]
    message: Annotated[str, Field(description="Why it failed.")]


class RestorePointValue(Value):
    """A savepoint that a person may restore."""

    savepoint: Annotated[str, Field(description="Its name.")]
    epoch: Annotated[int, Field(description="Epoch of the checkpoint.")]
    batch: Annotated[int, Field(description="The last cut that is in it.")]
    command: Annotated[str, Field(description="The command that restores it.")]


class UpgradesValue(Value):
    """The upgrades of an app on Kubernetes, from the status of its StreamApp."""

    stream_app: Annotated[str | None, Field(description="Namespace and name; null: the app has no cluster.")]
    phase: Annotated[str, Field(description="The app's phase.")] = ""
    version: Annotated[str, Field(description="The version that runs, or ran last.")] = ""
    degraded: Annotated[str, Field(description="What needs a person; empty: nothing.")] = ""
    upgrades: Annotated[tuple[UpgradeValue, ...], Field(description="The newest first; at most 21.")] = ()
    savepoints: Annotated[tuple[ClusterSavepoint, ...], Field(description="The newest first.")] = ()
    restore_points: Annotated[
        tuple[RestorePointValue, ...], Field(description="Savepoints to choose from when a person must decide.")
    ] = ()
    notes: Annotated[tuple[str, ...], Field(description="What is not known, and what to do.")] = ()


class SampleRecordValue(Value):
    """A record of an input."""

    topic: Annotated[str, Field(description="Its topic.")]
    partition: Annotated[int, Field(description="Its partition.")]
    offset: Annotated[int, Field(description="Its offset.")]
    time_ms: Annotated[int, Field(description="Its timestamp, in epoch milliseconds.")]
    text: Annotated[str, Field(description="Its value as text; bytes that are none are escaped.")]


class SavepointValue(Value):
    """A savepoint of an app."""

    name: Annotated[str, Field(description="Its name.")]
    batch: Annotated[int, Field(description="The last cut that is in it.")]
    epoch: Annotated[int, Field(description="Epoch of the checkpoint.")]
    created_ms: Annotated[int, Field(description="When it was made, in epoch milliseconds.")]
    version: Annotated[str, Field(description="Version of the app's program.")]
    settled: Annotated[bool, Field(description="Whether all output of its cuts is written.")]
    rows: Annotated[int, Field(description="Rows of state.")]
    bytes: Annotated[int, Field(description="Bytes of state.")]


class CompletionValue(Value):
    """A text that would fit where a person types."""

    text: Annotated[str, Field(description="The text that replaces the word at the cursor.")]
    label: Annotated[str, Field(description="Its name.")]
    kind: Annotated[str, Field(description="field, function, keyword, list, stream, rule, entry or value.")]
    detail: Annotated[str, Field(description="The type of a field, the usage of a function, ...")] = ""
    about: Annotated[str, Field(description="One line about it.")] = ""


class CompletionsValue(Value):
    """What fits at a place of a rule's text."""

    start: Annotated[int, Field(description="Column, from 1, at which the word to replace begins.")]
    options: Annotated[tuple[CompletionValue, ...], Field(description="The texts that fit, the best first.")]


class SimilarEventValue(Value):
    """An event that satisfies a rule's condition, or all of its clauses but one."""

    at: Annotated[str, Field(description="topic:partition:offset")]
    time_ms: Annotated[int, Field(description="Its event time, in epoch milliseconds.")]
    condition: Annotated[str, Field(description="where, expect or step NAME.")]
    satisfied: Annotated[bool, Field(description="Whether the whole condition is TRUE.")]
    clauses: Annotated[tuple[ClauseValue, ...], Field(description="The clauses that are not TRUE, with the values.")]
    values: Annotated[Mapping[str, str], Field(description="The fields of the event that are not NULL.")]


class SimilarValue(Value):
    """Events like those that a rule is about, among some records of its topics, read from the newest on."""

    events: Annotated[tuple[SimilarEventValue, ...], Field(description="The newest of them.")]
    read: Annotated[int, Field(description="Records that were read.")]
    left: Annotated[int, Field(description="Records that are left to read within the limit.")]
    decoded: Annotated[int, Field(description="Events among them.")]
    satisfied: Annotated[int, Field(description="Events that satisfy a condition of the rule.")]
    near: Annotated[int, Field(description="Events that satisfy all clauses but one.")]
    candidates: Annotated[
        int | None, Field(description="Events that the index would pass to the rule: its cost. Null: it has no index.")
    ]
    next: Annotated[
        Mapping[str, int] | None, Field(description="`before` of the next request; null: all was read.")
    ] = None
