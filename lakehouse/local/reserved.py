"""`python -m lakehouse.local.reserved PORT COMMAND…`: run a server that alone has its port on `localhost`.

A server that listens on 127.0.0.1 leaves [::1] to anybody, and clients that are led to `localhost` (gRPC's, browsers)
try [::1] first: another user of the machine could listen there for their credentials. This program binds [::1]:PORT,
without listening, and becomes the command, which keeps the binding as long as it lives.
"""

from __future__ import annotations

import errno
import os
import socket
import sys

NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def bound(port: int) -> socket.socket | None:
    """Bind [::1]:port so that nobody else can. Connections to it are refused.

    Returns: the socket; None on a machine without IPv6, where nobody can listen there.
    Raises: OSError when another program has the port there.
    """
    try:
        # Without SO_REUSEADDR, which would share the address with others as long as nobody listens.
        reservation = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    except OSError:
        return None
    try:
        reservation.bind(("::1", port))
    except OSError as error:
        reservation.close()
        if error.errno in NO_IPV6:
            return None
        raise
    return reservation


def main() -> None:
    """Bind the port and become the command."""
    port, *command = sys.argv[1:]
    try:
        reservation = bound(int(port))
    except OSError as error:
        sys.exit(f"Error: port {port} of [::1] is taken by another program ({error.strerror})")
    if reservation is not None:
        reservation.set_inheritable(True)
    os.execv(command[0], command)  # noqa: S606  the command is that of the stack's own description


if __name__ == "__main__":
    main()
