"""The gRPC channel to a Spark Connect server, which sends the token only to the intended server."""

from __future__ import annotations

import grpc
from pyspark.sql.connect.client.core import DefaultChannelBuilder

LOOPBACK = "127.0.0.1"


class Channel(DefaultChannelBuilder):
    """PySpark's channel, with loopback servers reached at 127.0.0.1 only.

    gRPC resolves `localhost` to [::1] first, where another user of the machine may listen for the token. PySpark itself
    sends a token without TLS only to a host spelled `localhost`.
    """

    def toChannel(self) -> grpc.Channel:  # noqa: N802  PySpark's name
        """Open the channel."""
        if self.use_ssl or self.host not in ("localhost", LOOPBACK):
            return super().toChannel()
        self._host = LOOPBACK
        self.setChannelOption("grpc.enable_http_proxy", 0)
        if self.token is None:
            return self._insecure_channel(self.endpoint)
        local, token = grpc.local_channel_credentials(), grpc.access_token_call_credentials(self.token)
        return self._secure_channel(self.endpoint, grpc.composite_channel_credentials(local, token))
