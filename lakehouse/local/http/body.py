"""Bodies of ASGI requests, read and decompressed with a limit of memory."""

import zlib

from lakehouse.local.http.guard import App, Receive, Scope, Send, headers_of, respond


class TooLarge(Exception):
    """The body, as sent or decompressed, is larger than allowed."""


class Malformed(Exception):
    """The body is incomplete, or invalid for its encoding."""


async def read(receive: Receive, limit: int) -> bytes:
    """Return a request's body.

    Args:
        receive: ASGI's function for the next part.
        limit: Maximum size, in bytes.

    Raises:
        TooLarge: The body is larger.
        Malformed: The client disconnected before its end.
    """
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Malformed("the client disconnected")
        body += message.get("body", b"")
        if len(body) > limit:
            raise TooLarge
        if not message.get("more_body"):
            return bytes(body)


def decompress(body: bytes, limit: int) -> bytes:
    """Decompress a gzip body.

    Args:
        body: One gzip member.
        limit: Maximum size of the result, in bytes.

    Raises:
        TooLarge: The result is larger.
        Malformed: The body is not gzip, is truncated, or has data after the member.
    """
    member = zlib.decompressobj(wbits=31)
    try:
        content = member.decompress(body, limit + 1)
    except zlib.error as error:
        raise Malformed(str(error)) from error
    if len(content) > limit:
        raise TooLarge
    if not member.eof or member.unused_data:
        raise Malformed("it is truncated, or followed by other data")
    return content


def plain(app: App, limit: int) -> App:
    """Wrap an application, so that it receives bodies of a limited size and without content encoding."""

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        try:
            body = await read(receive, limit)
            if headers_of(scope).get("content-encoding", "").lower() == "gzip":
                body = decompress(body, limit)
        except TooLarge:
            await respond(scope, send, 413, f"The request is larger than {limit >> 20} MiB. Nothing was done.")
            return
        except Malformed as error:
            await respond(scope, send, 400, f"The request's body cannot be read: {error}. Nothing was done.")
            return
        replaced = (b"content-encoding", b"content-length", b"transfer-encoding")
        headers = [(name, value) for name, value in scope["headers"] if name.lower() not in replaced]
        headers.append((b"content-length", str(len(body)).encode()))
        pending = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_plain():
            return pending.pop() if pending else await receive()

        await app({**scope, "headers": headers}, receive_plain, send)

    return limited
