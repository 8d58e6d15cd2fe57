"""The gRPC channel to a Spark Connect server, which sends the token only to the intended server."""

from collections.abc import Iterable

import grpc
from pyspark.sql.connect.client.core import DefaultChannelBuilder

LOOPBACK = "127.0.0.1"


class Channel(DefaultChannelBuilder):
    """PySpark's channel, with loopback servers reached at 127.0.0.1 only.

    gRPC resolves `localhost` to [::1] first, where another user of the machine may listen for the token. PySpark itself
    sends a token without TLS only to a host spelled `localhost`.
    """

    def toChannel(self) -> grpc.Channel:  # noqa: N802  PySpark's name
        """Open the channel.

        The token is not part of the channel's credentials, as it is in PySpark: gRPC calls Python for those from a
        thread that holds a lock of the channel, while a thread that closes the channel waits for that lock and holds
        Python's. This stopped two processes for good.
        """
        is_loopback = not self.use_ssl and self.host in ("localhost", LOOPBACK)
        if is_loopback:
            self._host = LOOPBACK
            self.setChannelOption("grpc.enable_http_proxy", 0)
        if not self.secure:
            return self._insecure_channel(self.endpoint)
        credentials = grpc.local_channel_credentials() if is_loopback else grpc.ssl_channel_credentials()
        return self._secure_channel(self.endpoint, credentials)

    def metadata(self) -> Iterable[tuple[str, str]]:
        """Return the metadata of each call: the parameters of the address, and the token."""
        if self.token is None:
            return super().metadata()
        return [*super().metadata(), ("authorization", f"Bearer {self.token}")]
