"""``headgate rules propose``, ``approve``, ``proposals``, ``policy``, ``signer`` and ``new-key``: four eyes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from headgate.commands.rules.options import read
from headgate.commands.rules.publishing import in_mode, report_problems, response_options, running_app, show_published
from headgate.console.output import Json, Output, emit, output_option
from headgate.errors import InputError
from headgate.kafka_login import KafkaLogin
from headgate.rules.options import files_option, server_option, streams_option, target_option

if TYPE_CHECKING:
    from headgate.rules.publish import ControlChange
    from headgate.rules.remote import RemoteApp

_Command = TypeVar("_Command", bound=Callable[..., object])
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_ROLES = ("author", "publisher", "approver", "admin")
_HEAD = ("PROPOSAL", "BY", "RULES", "STATE", "NEEDS", "APPROVALS", "WHY")


def _key_option(command: _Command) -> _Command:
    help_text = "The key file of who signs (headgate rules new-key)."
    return click.option("--key", "key_file", type=_FILE, required=True, help=help_text)(command)


def _signing_option(command: _Command) -> _Command:
    help_text = "The key file of who signs (headgate rules new-key); with --server the console signs for you."
    return click.option("--key", "key_file", type=_FILE, default=None, help=help_text)(command)


def _required(key_file: Path | None) -> Path:
    if key_file is None:
        raise InputError("--key: name the key file of who signs, or a console with --server")
    return key_file


@click.command(short_help="Sign rules and propose them.")
@files_option
@target_option
@server_option
@response_options
@_signing_option
@click.option("--mode", "mode_text", default=None, help="Propose in this mode: live, shadow, canary=10%, paused.")
@click.option("--delete", "deleted", multiple=True, metavar="RULE", help="Delete this rule too.")
@click.option(
    "--delete-policy", "deleted_policies", multiple=True, metavar="NAME", help="Delete this decision policy too."
)
@click.option("--emergency", is_flag=True, help="Take effect at once, for the hours that the policy allows.")
@output_option
def propose(
    paths: Sequence[Path],
    streams: Path | None,
    lists: Path | None,
    login: KafkaLogin,
    app: str,
    server: RemoteApp | None,
    wait: float,
    why: str | None,
    key_file: Path | None,
    mode_text: str | None,
    deleted: Sequence[str],
    deleted_policies: Sequence[str],
    output: Output,
    *,
    emergency: bool,
) -> int:
    """Sign rules and decision policies, and propose them to the app: all take effect together.

    Without a policy that asks for approvals they take effect at once. Else another person approves the printed ID:
    headgate rules approve ID. PATHS may be left out with --delete and --delete-policy. A policy about all rules
    holds for decision policies too.
    """
    from headgate.rules.signing import read_key

    rules, policies = [], []
    if paths or not (deleted or deleted_policies):
        bundle = read(paths, streams, lists)
        if bundle.problems:
            return report_problems(bundle, output)
        rules = [in_mode(one.rule, mode_text) for one in bundle.rules]
        policies = [one.policy for one in bundle.policies]
    if server is not None:
        if policies or deleted_policies:
            raise InputError("propose: a console proposes rules alone; propose decision policies with --key")
        done = server.propose(rules, deleted, why or "", round(wait * 1000), emergency=emergency)
        return show_published([done], app, wait, output, waited=True)
    signing = read_key(_required(key_file), app)
    change = signing.proposal_change(
        rules,
        deleted,
        why or "",
        _now_ms(),
        emergency=emergency,
        policies=policies,
        deleted_policies=deleted_policies,
    )
    return _send(change, (login, app, wait, why), output)


@click.command(short_help="Approve or refuse a proposal of somebody else.")
@click.argument("proposal")
@target_option
@server_option
@response_options
@_signing_option
@click.option("--refuse", is_flag=True, help="Close the proposal; an emergency ends.")
@output_option
def approve(
    proposal: str,
    login: KafkaLogin,
    app: str,
    server: RemoteApp | None,
    wait: float,
    why: str | None,
    key_file: Path | None,
    output: Output,
    *,
    refuse: bool,
) -> int:
    """Approve PROPOSAL, whose ID headgate rules proposals shows. It takes effect with the last approval it needs.

    Who has proposed it cannot approve it; whoever signs as approver can, once.
    """
    from headgate.rules.signing import read_key

    if server is not None:
        done = server.decide(proposal, why or "", round(wait * 1000), refuse=refuse)
        return show_published([done], app, wait, output, waited=True)
    change = read_key(_required(key_file), app).approval_change(proposal, why or "", _now_ms(), refuse=refuse)
    return _send(change, (login, app, wait, why), output)


@click.command(short_help="List open proposals and emergencies.")
@streams_option
@target_option
@server_option
@output_option
def proposals(streams: Path | None, login: KafkaLogin, app: str, server: RemoteApp | None, output: Output) -> None:
    """List the proposals that wait for approvals, and the emergencies that have not ended."""
    from headgate.rules.history import read_history
    from headgate.rules.render import as_json, as_table
    from rulecore.documents.scalars import render_time

    if server is not None:
        found = [
            (
                one["proposal"],
                one["by"],
                ", ".join([*(f"{rule['rule']}@{rule['version']}" for rule in one["rules"]), *one["deleted"]]),
                f"emergency until {render_time(until)}" if (until := one["emergency_until_ms"]) else "open",
                one["needs"],
                ", ".join(one["approvals"]) or None,
                one["why"],
            )
            for one in server.proposals()
        ]
        emit(output, as_json(_HEAD, found), as_table(_HEAD, found))
        return
    kafka, topics = running_app(login, app)
    rules = read_history(kafka, topics, streams, _now_ms()).rules
    running = [one for one in rules.governance.emergencies.values() if not one.over]
    ends = {proposal: one.until_ms for one in running for proposal in one.proposals}
    rows = [
        (
            name,
            one.by,
            ", ".join(one.document.contents),
            f"emergency until {render_time(ends[name])}" if name in ends else "open",
            rules.compute_need(one.document).approvals,
            ", ".join(one.approvals) or None,
            one.document.why,
        )
        for name, one in rules.governance.proposals.items()
    ]
    emit(output, as_json(_HEAD, rows), as_table(_HEAD, rows))


@click.command(short_help="Say which rules need approvals.")
@click.argument("file", type=_FILE)
@target_option
@response_options
@_key_option
@output_option
def policy(
    file: Path, login: KafkaLogin, app: str, wait: float, why: str | None, key_file: Path, output: Output
) -> int:
    """Publish the policy of a YAML FILE, signed by an admin.

    \b
    policy: payments
    version: 1
    tags: [payments]           # empty: all rules
    modes: [live, canary]      # retired: deletions too
    approvals: 1               # by others than the proposer
    emergency_hours: 24        # 0: never alone
    require: signed            # refuse unsigned changes of these rules
    """
    from headgate.rules.signing import read_key
    from rulecore.documents.yaml_reader import read_yaml

    documents, problems = read_yaml(file.read_text(), str(file))
    if problems:
        raise InputError(problems[0].render())
    document = documents[0].value if len(documents) == 1 else None
    if not isinstance(document, dict):
        raise InputError(f"{file}: a policy is a mapping")
    return _send(read_key(key_file, app).policy_change(document), (login, app, wait, why), output)


@click.command(short_help="Make the key of a person or a console known.")
@click.argument("name")
@target_option
@response_options
@_key_option
@click.option("--role", type=click.Choice(_ROLES), required=True, help="The highest role that counts with the key.")
@click.option("--public", default=None, help="The public key, as base64 (default: that of --key).")
@click.option("--subject", default=None, help="Whose key it is: the subject of a login (default: NAME).")
@click.option("--attests", is_flag=True, help="The key of a console, which signs for whom it has identified.")
@click.option("--version", type=click.IntRange(1), default=1, show_default=True, help="Above the one before.")
@click.option("--revoke", is_flag=True, help="The key counts no more.")
@output_option
def signer(
    name: str,
    login: KafkaLogin,
    app: str,
    wait: float,
    why: str | None,
    key_file: Path,
    role: str,
    public: str | None,
    subject: str | None,
    version: int,
    output: Output,
    *,
    attests: bool,
    revoke: bool,
) -> int:
    """Make the key NAME known to the app, signed by an admin. The first signer signs itself.

    \b
    headgate rules new-key ada ada.key                       # prints the public key
    headgate rules signer ada --role admin --key ada.key     # the first one
    headgate rules signer bob --role approver --public ... --key ada.key
    """
    from headgate.rules.signing import read_key

    signing = read_key(key_file, app)
    if public is None and signing.signer != name:
        raise InputError(f"--public: name the public key of {name}; headgate rules new-key prints it")
    entries = {
        "signer": name,
        "version": version,
        "key": public or signing.key.public,
        "role": role,
        "subject": None if attests else subject or name,
        "attests": attests,
        "revoked": revoke,
    }
    return _send(signing.signer_change(entries), (login, app, wait, why), output)


@click.command(name="new-key", short_help="Make a key with which a person signs.")
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@output_option
def new_key(name: str, file: Path, output: Output) -> None:
    """Write a new private key for the signer NAME to FILE, mode 600, and print its public key."""
    from headgate.rules.signing import new_key as write

    public = write(name, file).public
    found: Json = {"signer": name, "public": public}
    emit(output, found, public)


def _send(change: ControlChange, target: tuple[KafkaLogin, str, float, str | None], output: Output) -> int:
    from headgate.rules.publish import note_for_user, publish

    login, app, wait, why = target
    kafka, topics = running_app(login, app)
    published = publish(kafka, topics, [change], note_for_user(why), round(wait * 1000))
    return show_published(published, app, wait, output, waited=True)


def _now_ms() -> int:
    return int(time.time() * 1000)
