"""A TCP proxy on loopback that loses connections when a test says so."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class CuttingProxy:
    """Passes bytes on to a server; cuts the next connections once the server has begun to answer.

    Args:
        port: The server's port on 127.0.0.1.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self.cuts: list[int] = []
        """For each of the next connections: after how many bytes of the answer it is cut; negative is never."""
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Closing alone does not wake the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            cut = self.cuts.pop(0) if self.cuts else -1
            threading.Thread(target=self._serve, args=(near, cut), daemon=True).start()

    def _serve(self, near: socket.socket, cut: int) -> None:
        with near, socket.create_connection(("127.0.0.1", self._target)) as far:
            threading.Thread(target=self._upstream, args=(near, far), daemon=True).start()
            passed = 0
            with suppress(OSError):
                while piece := far.recv(65536):
                    if 0 <= cut <= passed + len(piece):
                        near.sendall(piece[: cut - passed])
                        break
                    near.sendall(piece)
                    passed += len(piece)
            for end in (near, far):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _upstream(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while piece := near.recv(65536):
                far.sendall(piece)
            far.shutdown(socket.SHUT_WR)
