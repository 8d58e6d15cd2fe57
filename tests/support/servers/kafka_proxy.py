"""A proxy in front of a broker, which counts the bytes that the broker sends."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

FRAME = struct.Struct(">i")
"""The size before each request and response (Kafka protocol guide: Protocol primitive types)."""


class KafkaProxy:
    """A running proxy, which clients reach at `address`.

    Clients connect to the addresses in the broker's metadata. The proxy replaces the broker's port in them by its own,
    which does not change the size of a response.

    Attributes:
        sent: The bytes that the broker has sent.
    """

    def __init__(self, broker: str):
        host, _, port = broker.rpartition(":")
        self._broker = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        own_port = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{own_port}"
        self._advertised = host.encode() + FRAME.pack(int(port))
        self._substitute = host.encode() + FRAME.pack(own_port)
        self._lock, self.sent = threading.Lock(), 0
        threading.Thread(target=self._accept, daemon=True).start()

    @contextmanager
    def running(self) -> Iterator[KafkaProxy]:
        """Accept connections within a block."""
        with self._listener:
            yield self

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(self._broker)
                for target in (self._forward_requests, self._forward_responses):
                    threading.Thread(target=target, args=(client, broker), daemon=True).start()

    @staticmethod
    def _forward_requests(client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError), broker:
            while data := client.recv(1 << 16):
                broker.sendall(data)
            broker.shutdown(socket.SHUT_RDWR)

    def _forward_responses(self, client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError), client, broker.makefile("rb") as responses:
            while size := responses.read(FRAME.size):
                response = responses.read(FRAME.unpack(size)[0]).replace(self._advertised, self._substitute)
                with self._lock:
                    self.sent += len(size) + len(response)
                client.sendall(size + response)
            client.shutdown(socket.SHUT_RDWR)
