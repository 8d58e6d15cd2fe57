"""Reading the body of an ASGI request without letting its sender choose how much memory that takes."""

from __future__ import annotations

import zlib

from lakehouse.local.guard import App, Receive, Scope, Send, headers_of, respond


class TooLarge(Exception):
    """The body, as sent or decompressed, is larger than allowed."""


class Malformed(Exception):
    """The body is incomplete or is not what its encoding says."""


async def read(receive: Receive, limit: int) -> bytes:
    """Return a request's body.

    Args:
        receive: Where its parts come from.
        limit: Largest size, in bytes.

    Raises:
        TooLarge: It is larger.
        Malformed: The client left before its end.
    """
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Malformed("the client left")
        body += message.get("body", b"")
        if len(body) > limit:
            raise TooLarge
        if not message.get("more_body"):
            return bytes(body)


def decompress(body: bytes, limit: int) -> bytes:
    """Return what gzip compressed.

    Args:
        body: One gzip member.
        limit: Largest size of the result, in bytes.

    Raises:
        TooLarge: The result is larger.
        Malformed: It is not gzip, is cut off, or something follows it.
    """
    member = zlib.decompressobj(wbits=31)
    try:
        content = member.decompress(body, limit + 1)
    except zlib.error as error:
        raise Malformed(str(error)) from error
    if len(content) > limit:
        raise TooLarge
    if not member.eof or member.unused_data:
        raise Malformed("cut off, or followed by something else")
    return content


def plain(app: App, limit: int) -> App:
    """Give an application bodies of a limited size and without an encoding."""

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

        async def again():
            return pending.pop() if pending else await receive()

        await app({**scope, "headers": headers}, again, send)

    return limited
