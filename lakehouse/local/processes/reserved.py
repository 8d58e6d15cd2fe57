"""`python -m lakehouse.local.processes.reserved PORT COMMAND…`: a server whose port on [::1] is reserved.

Clients that connect to `localhost` (gRPC, browsers) try [::1] first. If a server listens on 127.0.0.1 only, another
user of the machine could listen on [::1] and receive credentials. This program binds [::1]:PORT without listening, and
replaces itself by the command, which keeps the port bound until it ends.
"""

import errno
import os
import socket
import sys

NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def bound(port: int) -> socket.socket | None:
    """Bind [::1]:port, so that no other process can. Connections to it are refused.

    Returns:
        The socket; None on a machine without IPv6, where no process can listen there.

    Raises:
        OSError: Another program uses the port.
    """
    try:
        # Without SO_REUSEADDR, which would let others bind the address as long as no socket listens.
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
    """Bind the port and execute the command."""
    port, *command = sys.argv[1:]
    try:
        reservation = bound(int(port))
    except OSError as error:
        sys.exit(f"Error: port {port} of [::1] is used by another program ({error.strerror})")
    if reservation is not None:
        reservation.set_inheritable(True)
    os.execv(command[0], command)  # noqa: S606  the command is of a server's description


if __name__ == "__main__":
    main()
