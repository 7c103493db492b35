"""``headgate console``: the console in a browser, with its API."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headgate.errors import InputError
from headgate.kafka_login import KafkaLogin, login_option
from headgate.kubernetes_login import check_stream_app, kubeconfig_option
from headgate.rules.options import DEFAULT_APP, streams_option

if TYPE_CHECKING:
    from headgate.web.settings import ConsoleSettings

_FILE = click.Path(dir_okay=False, path_type=Path)
_ROLES = ("viewer", "author", "publisher", "approver", "operator", "admin")


@click.command(name="console")
@login_option
@click.option("--app", "apps", multiple=True, help=f"A rules app to show; repeatable (default: {DEFAULT_APP}).")
@streams_option
@click.option(
    "--app-settings",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="Settings file of the app: the formats of its topics, and the status of its process.",
)
@click.option(
    "--stream-app",
    default=None,
    metavar="NAMESPACE/NAME",
    callback=check_stream_app,
    help="The app's StreamApp on Kubernetes, for the page of its upgrades.",
)
@kubeconfig_option
@click.option("--port", type=click.IntRange(0, 65535), default=None, help="Port (default: 8808; 0: any free one).")
@click.option("--role", type=click.Choice(_ROLES), default=None, help="What may be done there (default: admin).")
@click.option("--token-file", type=_FILE, default=None, help="Write a token for programs to this file, mode 600.")
@click.option(
    "--settings",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=None,
    help="Settings file of the console; --port and --role precede it.",
)
def command(
    login: KafkaLogin,
    apps: Sequence[str],
    streams: Path | None,
    app_settings: Path | None,
    stream_app: str | None,
    kubeconfig: Path | None,
    port: int | None,
    role: str | None,
    token_file: Path | None,
    settings: Path | None,
) -> None:
    """Show rules, alerts and dead letters in a browser, and serve /api/v1.

    The printed address opens one session in one browser of this machine; a further one is printed then. Ctrl-C stops.

    \b
    headgate console --app shop
    headgate console --app shop --role viewer          # changes nothing
    headgate console --app shop --token-file token     # for programs: Authorization: Bearer
    """
    from headgate.console.messages import to_stderr
    from headgate.web.server import ConsoleServer, announce

    found = _settings(login, apps, streams, app_settings, stream_app) if settings is None else _read(settings)
    changes = {
        name: value for name, value in (("port", port), ("role", role), ("kubeconfig", kubeconfig)) if value is not None
    }
    if token_file is not None and found.access is not None:
        raise InputError(
            f"--token-file {token_file}: the token has the role {found.role.value} for all apps, whatever the grants "
            "of `access` say; programs send a token of the provider there (access.tokens)"
        )
    server = ConsoleServer(found if not changes else type(found).model_validate({**dict(found), **changes}))
    if token_file is not None:
        server.write_token(token_file)
    announce(server, to_stderr)
    server.serve()


def _read(file: Path) -> ConsoleSettings:
    from headgate.web.settings import ConsoleSettings
    from streamcore.service.config.documents import load_document

    return load_document(file, ConsoleSettings)


def _settings(
    login: KafkaLogin,
    apps: Sequence[str],
    streams: Path | None,
    app_settings: Path | None,
    stream_app: str | None,
) -> ConsoleSettings:
    from headgate.web.settings import ConsoleApp, ConsoleSettings

    shown = tuple(
        ConsoleApp(name=app, streams=streams, settings=app_settings, stream_app=stream_app)
        for app in apps or (DEFAULT_APP,)
    )
    return ConsoleSettings(kafka=login.settings("headgate-console"), apps=shown)
