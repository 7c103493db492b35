"""A proxy to the server that can drop the responses of the server."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Wire:
    """Listens on ``port`` and passes bytes on, both ways. One connection after another, or several."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._deaf = threading.Event()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_answers(self) -> None:
        """Drop the responses on the existing connections; requests are still passed on."""
        self._deaf.set()

    def cut(self) -> None:
        """End the connections there are; new ones work."""
        ended, self._open = self._open, []
        for one in ended:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._deaf.clear()

    def close(self) -> None:
        """End everything."""
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            self._open += [client, server]
            threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if not (answers and self._deaf.is_set()):
                    target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
