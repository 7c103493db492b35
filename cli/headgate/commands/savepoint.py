"""``headgate savepoint``: the whole state of an app at a batch boundary, taken, looked at, and gone on from."""

from __future__ import annotations

from pathlib import Path

import click

from headgate.output import Json, Output, emit, output_option
from headgate.savepoint_options import decisions, decisions_option, place_option, savepoints_at, service_option
from headgate.savepoint_view import listed, plan_data, planned, shown, summary


@click.group(name="savepoint")
def command() -> None:
    """Take savepoints of an app, look at them, and go on from one: another version, another size, another machine.

    A savepoint is complete or it does not exist. It holds the state after one batch and where every source goes on.
    """


@command.command()
@click.argument("name", default="")
@service_option
@click.option("--accept-unsettled", is_flag=True, help="Although the last process died within a batch.")
@click.option("--timeout", "limit_s", type=float, default=300, show_default=True, help="For a running app, in seconds.")
@output_option
def create(
    name: str, service: str, file: Path, place: str | None, accept_unsettled: bool, limit_s: float, output: Output
) -> None:
    """Take one, of an app that runs (it goes on) or of one that has stopped. NAME: <app>-b<batch>-e<epoch> if none."""
    from headgate.savepoint_taking import create as take
    from headgate.services import load_app

    loaded = load_app(service, file)
    savepoints = savepoints_at(place or loaded.settings.savepoint_place, loaded.app.name)
    made = take(loaded, savepoints, name, accept_unsettled=accept_unsettled, limit_s=limit_s).manifest
    emit(output, summary(made), listed([made]))


@command.command(name="list")
@place_option
@output_option
def list_(place: str, app: str, output: Output) -> None:
    """All of an app that are complete, the oldest first."""
    found = [one.manifest for one in savepoints_at(place, app)]
    data: list[Json] = [summary(one) for one in found]
    emit(output, data, listed(found))


@command.command()
@click.argument("name")
@place_option
@output_option
def show(name: str, place: str, app: str, output: Output) -> None:
    """What is in one: where it goes on, how far time has come, how much state. Its rows: headgate state show."""
    one = savepoints_at(place, app).get(name).manifest
    tables: list[Json] = [
        {"table": t.name, "stage": t.stage, "rows": t.rows, "bytes": t.bytes, "columns": dict(t.columns)}
        for t in one.tables
    ]
    topics: dict[str, Json] = {topic: dict(places) for topic, places in one.next_position.by_topic().items()}
    emit(output, {**summary(one), "topics": topics, "tables": tables}, shown(one))


@command.command()
@click.argument("name")
@place_option
@output_option
def verify(name: str, place: str, app: str, output: Output) -> int:
    """Compare every file with its digest. Exit code 1 when one is not what was written."""
    found = savepoints_at(place, app).get(name)
    faults = found.verify()
    text = "\n".join(faults) if faults else f"{name}: {len(found.manifest.files)} files are what was written"
    data: list[Json] = [*faults]
    emit(output, {"name": name, "whole": not faults, "faults": data}, text)
    return 1 if faults else 0


@command.command()
@click.argument("name")
@service_option
@decisions_option
@output_option
def plan(
    name: str,
    service: str,
    file: Path,
    place: str | None,
    drop: tuple[str, ...],
    accept: tuple[str, ...],
    output: Output,
) -> int:
    """Say whether this version of the app can go on from it, and why not. Exit code 1 when it cannot."""
    from headgate.services import load_app
    from streamcore import savepoint
    from streamcore.savepoint.describe import describe

    loaded = load_app(service, file)
    manifest = savepoints_at(place or loaded.settings.savepoint_place, loaded.app.name).get(name).manifest
    found = savepoint.plan(manifest, describe(loaded.app, manifest.tables), decisions(drop, accept))
    emit(output, {"name": name, **plan_data(found)}, planned(found))
    return 0 if found.possible else 1


@command.command()
@click.argument("name")
@service_option
@decisions_option
@click.option(
    "--checkpoint",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="A new folder (default: the one in the settings).",
)
@click.option("--epoch", type=click.IntRange(1), default=None, help="Default: one more than the savepoint's.")
@output_option
def restore(
    name: str,
    service: str,
    file: Path,
    place: str | None,
    drop: tuple[str, ...],
    accept: tuple[str, ...],
    checkpoint: Path | None,
    epoch: int | None,
    output: Output,
) -> None:
    """Make a new checkpoint from it; the service that is started with that one goes on where it was."""
    from headgate.savepoint_taking import restore as make
    from headgate.services import load_app

    loaded = load_app(service, file)
    found = savepoints_at(place or loaded.settings.savepoint_place, loaded.app.name).get(name)
    to = checkpoint or loaded.settings.checkpoint
    done = make(loaded, found, to, found.manifest.epoch + 1 if epoch is None else epoch, decisions(drop, accept))
    text = f"{to}: epoch {done.epoch}, goes on after batch {found.manifest.batch}\n{planned(done.plan)}"
    emit(output, {"name": name, "checkpoint": str(to), "epoch": done.epoch, **plan_data(done.plan)}, text)


@command.command()
@click.argument("name")
@place_option
@output_option
def delete(name: str, place: str, app: str, output: Output) -> None:
    """Remove one. Checkpoints that were made from it go on without it."""
    savepoints_at(place, app).delete(name)
    emit(output, {"name": name, "deleted": True}, f"{name} is deleted")
