"""Addresses on the command line."""

import click


class Address(click.ParamType):
    """A parameter `HOST:PORT`; the host of IPv6 is in brackets."""

    name = "host:port"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Return the host and the port."""
        if isinstance(value, tuple):
            return value
        host, colon, port = str(value).rpartition(":")
        if not (host and colon and port.isdecimal() and int(port) < 65_536):
            self.fail(f"'{value}' is not HOST:PORT, such as 127.0.0.1:9464, or 0.0.0.0:9464 in a container", param, ctx)
        return host.strip("[]"), int(port)
