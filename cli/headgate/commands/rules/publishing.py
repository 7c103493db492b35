"""``headgate rules publish``, ``release`` and ``rollback``: the commands that change the rules of an app."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from headgate.commands.rules.options import read
from headgate.console.output import Json, Output, emit, output_option
from headgate.console.problems import problem_json
from headgate.errors import InputError
from headgate.kafka_login import KafkaLogin
from headgate.rules.options import files_option, server_option, streams_option, target_option

if TYPE_CHECKING:
    from headgate.rules.bundle import RuleBundle
    from headgate.rules.publish import AppTopics, ControlChange, PublishedChange
    from headgate.rules.remote import RemoteApp
    from rulecore.documents.releases import NamedChanges
    from rulecore.documents.rule import Rule
    from streamcore.kafka.settings import KafkaSettings

_Command = TypeVar("_Command", bound=Callable[..., object])
_RESPONSE_WAIT_S = 30.0


def response_options(command: _Command) -> _Command:
    """Add ``--wait`` and ``--why`` to a command."""
    why = click.option("--why", default=None, help="The reason for the change, kept in the history.")
    wait = click.option(
        "--wait",
        type=click.FloatRange(0.1),
        default=_RESPONSE_WAIT_S,
        show_default=True,
        help="Longest wait for a response, in seconds.",
    )
    return why(wait(command))


@click.command(short_help="Check rules and publish them, each independently.")
@files_option
@target_option
@server_option
@response_options
@click.option(
    "--delete-policy", "deleted", multiple=True, metavar="NAME", help="Delete this decision policy after publishing."
)
@click.option("--delete-feature", "unused", multiple=True, metavar="NAME", help="Delete this feature after publishing.")
@click.option("--mode", "mode_text", default=None, help="Publish in this mode: live, shadow, canary=10%, paused.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the app's responses.")
@output_option
def publish(
    paths: Sequence[Path],
    streams: Path | None,
    lists: Path | None,
    login: KafkaLogin,
    app: str,
    server: RemoteApp | None,
    wait: float,
    why: str | None,
    deleted: Sequence[str],
    unused: Sequence[str],
    mode_text: str | None,
    output: Output,
    *,
    no_wait: bool,
) -> int:
    """Check rules, features and decision policies, publish all of them or none, and show the app's responses.

    Features come before the rules that name them. Each takes effect on its own; use release for changes that belong
    together. Exit code 1 when this command or the app rejects one, or when a response does not come in time.
    """
    from headgate.rules.publish import (
        delete_feature,
        delete_policy,
        feature_change,
        note_for_user,
        policy_change,
        rule_change,
    )
    from headgate.rules.publish import publish as send

    bundle = read(paths, streams, lists)
    if bundle.problems:
        return report_problems(bundle, output)
    features = [*map(feature_change, bundle.features.values())]
    rules = [in_mode(rule.rule, mode_text) for rule in bundle.rules]
    others = [policy_change(one.policy) for one in bundle.policies]
    others += [*map(delete_policy, deleted), *map(delete_feature, unused)]
    if server is not None:
        wait_ms = 0 if no_wait else round(wait * 1000)
        answered = [server.change_named(one, why, wait_ms) for one in features]
        answered += [server.publish(rule, why, wait_ms) for rule in rules]
        answered += [server.change_named(one, why, wait_ms) for one in others]
        return show_published(answered, app, wait, output, waited=not no_wait)
    kafka, topics = running_app(login, app)
    changes = [*features, *map(rule_change, rules), *others]
    published = send(kafka, topics, changes, note_for_user(why), None if no_wait else round(wait * 1000))
    return show_published(published, app, wait, output, waited=not no_wait)


@click.command(short_help="Publish rules that take effect together.")
@click.argument("name")
@files_option
@target_option
@server_option
@response_options
@click.option("--delete", "deleted", multiple=True, metavar="RULE", help="Delete this rule in the release too.")
@click.option(
    "--delete-policy", "gone", multiple=True, metavar="NAME", help="Delete this decision policy in the release too."
)
@click.option(
    "--delete-feature", "unused", multiple=True, metavar="NAME", help="Delete this feature in the release too."
)
@output_option
def release(
    name: str,
    paths: Sequence[Path],
    streams: Path | None,
    lists: Path | None,
    login: KafkaLogin,
    app: str,
    server: RemoteApp | None,
    wait: float,
    why: str | None,
    deleted: Sequence[str],
    gone: Sequence[str],
    unused: Sequence[str],
    output: Output,
) -> int:
    """Publish rules as one release NAME: all of them take effect in the same cut, or none does.

    Decision policies and features in PATHS are part of it: features come before the rules that name them, policies
    after them. A large release is sent in parts that the app prepares first; it takes effect when the release itself
    arrives.
    """
    from rulecore.documents.releases import NamedChanges

    bundle = read(paths, streams, lists)
    if bundle.problems:
        return report_problems(bundle, output)
    named = NamedChanges.model_construct(
        features=tuple(bundle.features.values()),
        decision_policies=tuple(one.policy for one in bundle.policies),
        delete_policies=tuple(gone),
        delete_features=tuple(unused),
    )
    rules = [r.rule for r in bundle.rules]
    if server is not None:
        done = server.release(name, rules, deleted, named, why, round(wait * 1000))
        return show_published([done], app, wait, output, waited=True)
    return _release(name, (rules, deleted, named), (login, app, wait, why), output)


@click.command(short_help="Go back to an earlier version or release.")
@click.argument("rule", required=False)
@streams_option
@target_option
@server_option
@response_options
@click.option("--to", type=int, default=None, help="The version to go back to (default: the one that was live before).")
@click.option("--release", "undone", default=None, metavar="NAME", help="Roll back a whole release.")
@output_option
def rollback(
    rule: str | None,
    streams: Path | None,
    login: KafkaLogin,
    app: str,
    server: RemoteApp | None,
    wait: float,
    why: str | None,
    to: int | None,
    undone: str | None,
    output: Output,
) -> int:
    """Go back to an earlier version of RULE, or to the rules before a release.

    The earlier version is published again under a new number, so the history stays complete. Aggregates that it
    shares with the present version keep their state.
    """
    from headgate.rules.history import read_history
    from headgate.rules.publish import note_for_user, rule_change
    from headgate.rules.publish import publish as send
    from rulecore.ruleset.history import revert_release, roll_back

    if (rule is None) is (undone is None):
        raise InputError("rollback: name a RULE, or a release with --release NAME")
    if server is not None:
        wait_ms = round(wait * 1000)
        if rule is None:
            done = server.roll_back_release(str(undone), why or f"undo release {undone}", wait_ms)
        else:
            done = server.roll_back(rule, to, why or "roll back", wait_ms)
        return show_published([done], app, wait, output, waited=True)
    kafka, topics = running_app(login, app)
    history = read_history(kafka, topics, streams)
    if undone is not None:
        name = f"undo-{undone}"[:80]
        target = (login, app, wait, why or f"undo release {undone}")
        return _release(name, revert_release(history, undone), target, output)
    assert rule is not None
    earlier = roll_back(history, rule, to)
    published = send(kafka, topics, [rule_change(earlier)], note_for_user(why or "roll back"), round(wait * 1000))
    return show_published(published, app, wait, output, waited=True)


def _release(
    name: str,
    content: tuple[Sequence[Rule], Sequence[str], NamedChanges],
    target: tuple[KafkaLogin, str, float, str | None],
    output: Output,
) -> int:
    from headgate.rules.publish import note_for_user, publish_in_steps, release_changes

    login, app, wait, why = target
    kafka, topics = running_app(login, app)
    changes = release_changes(name, *content)
    published = publish_in_steps(kafka, topics, changes, note_for_user(why), round(wait * 1000))
    return show_published(published[-1:], app, wait, output, waited=True)


def running_app(login: KafkaLogin, app: str) -> tuple[KafkaSettings, AppTopics]:
    """Return Kafka and the topics of a rules app. ``InputError`` if it was never started there."""
    from headgate.rules.publish import AppTopics, require_app

    kafka, topics = login.settings("headgate-rules"), AppTopics(app)
    require_app(kafka, topics)
    return kafka, topics


def in_mode(rule: Rule, text: str | None) -> Rule:
    """Return the rule in the mode of ``--mode``. Raises ``InputError``, listing the modes, for another text."""
    from rulecore.documents.rule import parse_mode

    if text is None:
        return rule
    try:
        return rule.model_copy(update={"mode": parse_mode(text)})
    except ValueError as error:
        raise InputError(f"--mode: {error}; on the command line a canary is canary=10%") from None


# --- the form of the results ------------------------------------------------------------------------------------------


def report_problems(bundle: RuleBundle, output: Output) -> int:
    """Show the problems of rules that are not published; return the exit code."""
    problems: Json = {"published": [], "problems": [problem_json(p) for p in bundle.problems]}
    emit(output, problems, "\n".join([*(p.render() for p in bundle.problems), "nothing was published"]))
    return 1


def show_published(published: Sequence[PublishedChange], app: str, wait: float, output: Output, *, waited: bool) -> int:
    """Show the app's responses; return the exit code: 0 if it has accepted all changes, or was not asked."""
    data: Json = {"published": [_published_json(p) for p in published], "problems": []}
    unanswered = [p for p in published if p.response is None and waited]
    lines = [_published_line(p, waited=waited) for p in published]
    if unanswered:
        lines.append(
            f"no response of app {app} to {len(unanswered)} changes in {wait:g} s: is the app running? "
            "It will read the changes when it starts; see headgate rules list"
        )
    emit(output, data, "\n".join(lines))
    return 0 if not waited or all(p.response is not None and p.response.accepted for p in published) else 1


def _change_label(change: ControlChange) -> str:
    return f"{change.subject} {change.name}" if change.version is None else f"{change.name} version {change.version}"


def _published_line(change: PublishedChange, *, waited: bool) -> str:
    name = _change_label(change.change)
    if change.response is None:
        return f"published  {name}{': no response' if waited else ''}"
    response = change.response
    reason = "" if response.reason is None else ": " + response.reason.replace("\n", "\n    ")
    if response.subject in ("stream", "document") and response.accepted and response.batch is not None:
        name += f" from batch {response.batch} on"
    return f"{response.status:10} {name}{reason}"


def _published_json(change: PublishedChange) -> Json:
    return {
        change.change.subject.value: change.change.name,
        "version": change.change.version,
        "offset": change.position.offset,
        "status": None if change.response is None else change.response.status,
        "reason": None if change.response is None else change.response.reason,
        "batch": None if change.response is None else change.response.batch,
    }
