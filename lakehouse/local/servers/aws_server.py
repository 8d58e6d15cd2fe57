"""`python -m lakehouse.local.servers.aws_server PORT`: moto, protected by `guard`.

Environment: LAKEHOUSE_ALLOWED_HOSTS and moto's own variables.
"""

import os
import signal
import sys

from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

from lakehouse.local import guard
from lakehouse.local.guard import Hosts
from lakehouse.local.processes.description import LOOPBACK


def main() -> None:
    """Serve until stopped."""
    port = int(sys.argv[1])
    os.environ["MOTO_PORT"] = str(port)  # for the URLs of moto in its responses
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    app = guard.wsgi(DomainDispatcherApplication(create_backend_app), Hosts.of(port))
    run_simple(LOOPBACK, port, app, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main()
