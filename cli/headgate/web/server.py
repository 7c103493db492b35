"""Runs the console: prints its address with a one-time token, and serves until it is stopped."""

from __future__ import annotations

import getpass
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from headgate.console.messages import Print
from headgate.errors import InputError
from headgate.web.access.guard import OPEN_PATH
from headgate.web.access.identity import Authenticator
from headgate.web.access.sessions import Sessions
from headgate.web.application import build
from headgate.web.context import Console
from headgate.web.settings import ConsoleSettings

_GRACE_S = 2
_START_S = 20.0


class ConsoleServer:
    """A console on a socket of this machine. ``address``: with its port, which is free at the call."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self._socket = _listen(settings.host, settings.port)
        port = self._socket.getsockname()[1]
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self.address = f"http://{host}:{port}"
        subject = f"{getpass.getuser()}@{socket.gethostname()}"
        self.sessions = Sessions(subject, settings.role, settings.limits.sessions, port)
        hosts = {f"{host}:{port}", f"localhost:{port}", f"127.0.0.1:{port}"}
        access = settings.access
        self.console = Console(settings)
        self.identity = None if access is None else Authenticator(access)
        self._server = uvicorn.Server(
            uvicorn.Config(
                build(self.console, self.sessions, hosts, self.identity),
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                date_header=False,
                timeout_graceful_shutdown=_GRACE_S,
                ws="none",
                lifespan="on",
            )
        )

    def open_address(self) -> str:
        """Return an address that opens one session."""
        return f"{self.address}{OPEN_PATH}?token={self.sessions.new_token()}"

    def write_token(self, file: Path) -> None:
        """Write a token for programs to a file that only its owner can read."""
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(self.sessions.new_api_token() + "\n")

    def serve(self) -> None:
        """Serve until a signal arrives, or until ``stop``."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Ask the server to end."""
        self._server.should_exit = True


@contextmanager
def running(server: ConsoleServer) -> Iterator[ConsoleServer]:
    """Serve in a thread inside the context."""
    thread = threading.Thread(target=server.serve, name="console", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def announce(server: ConsoleServer, print_message: Print) -> None:
    """Print the address that opens the console, and another one whenever that was used; with a login its address."""
    if server.settings.access is not None:
        print_message(f"console: {server.settings.access.public_address}, listening on {server.address}")
        return
    server.sessions.on_opened = lambda: print_message(f"console: opened; for another browser {server.open_address()}")
    print_message(f"console: {server.open_address()}")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise InputError(f"console: cannot listen on {host}:{port}: {error.strerror}; name another --port") from None
    return listening
