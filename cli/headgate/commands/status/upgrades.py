"""``headgate upgrades``: the upgrades of an app on Kubernetes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.console.output import Json, Output, emit, output_option
from headgate.console.tables import table
from headgate.errors import InputError
from headgate.kubernetes_login import check_stream_app, kubeconfig_option
from headgate.rules.options import DEFAULT_APP, server_option

if TYPE_CHECKING:
    from headgate.rules.remote import RemoteApp
    from headgate.web.state.values import UpgradesValue

_HEAD = ("NUMBER", "KIND", "FROM", "TO", "STARTED", "LASTED", "STOPPED", "OUTCOME", "REASON")


@click.command(name="upgrades", short_help="Show the upgrades of an app on Kubernetes.")
@click.argument("stream_app", required=False, metavar="NAMESPACE/NAME", callback=check_stream_app)
@kubeconfig_option
@click.option("--app", default=DEFAULT_APP, show_default=True, help="With --server: the app.")
@server_option
@output_option
def command(
    stream_app: str | None, kubeconfig: Path | None, server: RemoteApp | None, output: Output, **_app: str
) -> None:
    """Show the upgrades of an app on Kubernetes, the newest first: versions, times, and why one was rolled back.

    Reads the status of the StreamApp, which has the newest 21. STOPPED is the upper bound of the time in which no
    version ran. `-o json` has the phases and the savepoints.

    \b
    headgate upgrades streams/shop
    headgate upgrades --app shop --server https://rules.example.org
    """
    import time

    from headgate.web.state.upgrades import UpgradeReader
    from headgate.web.state.values import UpgradesValue

    if server is not None and stream_app is not None:
        fault = "name one of them; a console shows the StreamApp of its --app"
        raise InputError(f"{stream_app} and --server (or HEADGATE_SERVER): {fault}")
    if server is None and stream_app is None:
        raise InputError("name the StreamApp as NAMESPACE/NAME, or a console with --server")
    if server is None:
        found = UpgradeReader(stream_app, kubeconfig).read()
    else:
        found = UpgradesValue.model_validate(server.upgrades())
    if not found.phase:
        raise InputError("; ".join(found.notes))
    data: Json = found.model_dump(mode="json")
    emit(output, data, "\n".join(_lines(found, int(time.time() * 1000))))


def _lines(found: UpgradesValue, now_ms: int) -> list[str]:
    from headgate.time_arguments import show_span, show_time

    rows = [
        (
            str(one.number),
            one.kind,
            one.from_version or "-",
            one.to_version,
            show_time(one.started_ms)[:19],
            show_span((now_ms if one.ended_ms is None else one.ended_ms) - one.started_ms),
            show_span(one.stopped_ms(now_ms)) if one.stops else "-",
            one.outcome or "in progress",
            ": ".join(text.split("\n", 1)[0] for text in (one.reason, one.message) if text),
        )
        for one in found.upgrades
    ]
    words = [*found.notes, *([found.degraded] if found.degraded else [])]
    commands = [f"savepoint {one.savepoint}, batch {one.batch}: {one.command}" for one in found.restore_points]
    return [f"{found.stream_app}: {found.phase}, version {found.version}", *table(_HEAD, rows), *words, *commands]
