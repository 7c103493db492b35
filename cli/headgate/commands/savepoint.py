"""``headgate savepoint``: creates, checks and restores savepoints, the state of an app at a batch boundary."""

from __future__ import annotations

from pathlib import Path

import click

from headgate.console.output import Json, Output, emit, output_option
from headgate.savepoints.options import (
    decisions_option,
    find_for,
    parse_decisions,
    savepoints_at,
    savepoints_option,
    service_option,
)
from headgate.savepoints.render import compatibility_json, compatibility_text, list_text, manifest_text, summary
from streamcore.savepoint import check_name
from streamcore.storage.location import location


@click.group(name="savepoint")
def command() -> None:
    """Create, check and restore savepoints of an app.

    A savepoint holds the state of an app after one batch and the next offset of every source. Another version of the
    app, another number of shards or another machine can continue from it. It is complete or does not exist.
    """


@command.command()
@click.argument("name", default="")
@service_option
@click.option(
    "--accept-unsettled", is_flag=True, help="Create it although the last process ended in the middle of a batch."
)
@click.option(
    "--timeout",
    "limit_s",
    type=float,
    default=300,
    show_default=True,
    help="Longest wait for a running app, in seconds.",
)
@output_option
def create(
    name: str,
    service: str,
    file: Path | None,
    root: str | None,
    accept_unsettled: bool,
    limit_s: float,
    output: Output,
) -> None:
    """Create a savepoint of an app that runs or has stopped. NAME is <app>-b<batch>-e<epoch> by default.

    A running app continues afterwards. For an app that the operator manages, the savepoint is of the newest epoch
    and the app must be stopped; while it runs, create a Savepoint resource instead.
    """
    from headgate.programs.service_app import load_app
    from headgate.savepoints.create import create as take

    loaded = load_app(service, file)
    savepoints = savepoints_at(root or loaded.settings.savepoints_root, loaded.app.name)
    manifest = take(loaded, savepoints, name, accept_unsettled=accept_unsettled, limit_s=limit_s).manifest
    emit(output, summary(manifest), list_text([manifest]))


@command.command(name="list")
@savepoints_option
@output_option
def list_(root: str, app: str, output: Output) -> None:
    """List the savepoints of an app, the oldest first."""
    manifests = [savepoint.manifest for savepoint in savepoints_at(root, app)]
    data: list[Json] = [summary(manifest) for manifest in manifests]
    emit(output, data, list_text(manifests))


@command.command()
@click.argument("name")
@savepoints_option
@output_option
def show(name: str, root: str, app: str, output: Output) -> None:
    """Show a savepoint: offsets, watermarks, size of the state. To see its rows: headgate state show."""
    manifest = savepoints_at(root, app).get(name).manifest
    tables: list[Json] = [
        {"table": t.name, "stage": t.stage, "rows": t.rows, "bytes": t.bytes, "columns": dict(t.columns)}
        for t in manifest.tables
    ]
    topics: dict[str, Json] = {topic: dict(offsets) for topic, offsets in manifest.next_position.by_topic().items()}
    emit(output, {**summary(manifest), "topics": topics, "tables": tables}, manifest_text(manifest))


@command.command()
@click.argument("name")
@savepoints_option
@output_option
def verify(name: str, root: str, app: str, output: Output) -> int:
    """Compare every file of a savepoint with its digest. Exit code 1 when one differs."""
    found = savepoints_at(root, app).get(name)
    faults = found.verify()
    text = "\n".join(faults) if faults else f"{name}: {len(found.manifest.files)} files have the right digests"
    data: list[Json] = [*faults]
    emit(output, {"name": name, "whole": not faults, "faults": data}, text)
    return 1 if faults else 0


@command.command(short_help="Check whether an app can continue from a savepoint.")
@click.argument("name")
@service_option
@decisions_option
@output_option
def plan(
    name: str,
    service: str,
    file: Path | None,
    root: str | None,
    drop: tuple[str, ...],
    accept: tuple[str, ...],
    output: Output,
) -> int:
    """Check whether this version of the app can continue from a savepoint. Exit code 1 when it cannot."""
    from headgate.programs.service_app import load_app
    from streamcore.savepoint.app_description import check_app_compatibility

    loaded = load_app(service, file)
    manifest = find_for(loaded, root, name).manifest
    found = check_app_compatibility(manifest, loaded.app, parse_decisions(drop, accept))
    emit(output, {"name": name, **compatibility_json(found)}, compatibility_text(found))
    return 0 if found.possible else 1


@command.command(short_help="Create a new checkpoint from a savepoint.")
@click.argument("name")
@service_option
@decisions_option
@click.option(
    "--checkpoint",
    default=None,
    help="A new folder, or s3://bucket/prefix (default: that of the settings, unless it holds one folder per epoch).",
)
@click.option("--epoch", type=click.IntRange(1), default=None, help="New epoch (default: the savepoint's plus 1).")
@output_option
def restore(
    name: str,
    service: str,
    file: Path | None,
    root: str | None,
    drop: tuple[str, ...],
    accept: tuple[str, ...],
    checkpoint: str | None,
    epoch: int | None,
    output: Output,
) -> None:
    """Create a new checkpoint from a savepoint; a service that starts with it continues from the savepoint."""
    from headgate.programs.service_app import load_app
    from headgate.savepoints.create import new_checkpoint
    from headgate.savepoints.create import restore as make

    loaded = load_app(service, file)
    found = find_for(loaded, root, name)
    to = location(checkpoint) if checkpoint else new_checkpoint(loaded.settings.checkpoint)
    restored = make(
        loaded, found, to, found.manifest.epoch + 1 if epoch is None else epoch, parse_decisions(drop, accept)
    )
    headline = f"{to}: epoch {restored.epoch}, continues after batch {found.manifest.batch}"
    text = f"{headline}\n{compatibility_text(restored.plan)}"
    emit(
        output,
        {"name": name, "checkpoint": str(to), "epoch": restored.epoch, **compatibility_json(restored.plan)},
        text,
    )


@command.command()
@click.argument("names", nargs=-1, required=True)
@savepoints_option
@click.option("--missing-ok", is_flag=True, help="Ignore missing savepoints, and delete incomplete ones.")
@output_option
def delete(names: tuple[str, ...], root: str, app: str, missing_ok: bool, output: Output) -> None:
    """Delete savepoints. Checkpoints that were made from them do not need them."""
    savepoints = savepoints_at(root, app)
    for name in names:  # all or none, if one was mistyped
        check_name(name) if missing_ok else savepoints.get(name)
    for name in names:
        savepoints.discard(name)
    data: list[Json] = [{"name": name, "deleted": True} for name in names]
    emit(output, data, "\n".join(f"{name} is deleted" for name in names))


@command.command()
@savepoints_option
@click.option(
    "--checkpoint",
    required=True,
    help="The app's checkpoint folder; all its epochs are deleted.",
)
@output_option
def purge(root: str, app: str, checkpoint: str, output: Output) -> int:
    """Delete every savepoint and every checkpoint of an app. Rejected while the app runs.

    Missing ones are no error. Topics and tables stay. If the app starts a new epoch meanwhile, that epoch stays and
    the exit code is 1.
    """
    from headgate.savepoints.purge import purge as remove

    result = remove(savepoints_at(root, app), location(checkpoint))
    data: dict[str, Json] = {"app": app, "savepoints": result.savepoints, "checkpoints": result.checkpoints}
    text = f"{app}: {result.savepoints} savepoints and {result.checkpoints} checkpoints are removed"
    if result.begun:
        text += (
            f"; started meanwhile and left in {checkpoint}: {', '.join(result.begun)}; stop the app, then purge again"
        )
    elif result.left:
        text += f"; left in {checkpoint}: {', '.join(result.left)}"
    emit(output, data | {"begun": [*result.begun]}, text)
    return 1 if result.begun else 0
