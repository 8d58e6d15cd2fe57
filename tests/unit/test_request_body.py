"""Limits of request bodies on loopback servers."""

import gzip
import tracemalloc

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from lakehouse.local import guard

LIMIT = 1 << 20


async def echo(request):
    return PlainTextResponse(await request.body(), headers={"encoded": request.headers.get("content-encoding", "no")})


@pytest.fixture(scope="module")
def client():
    return TestClient(guard.plain_bodies(Starlette(routes=[Route("/", echo, methods=["POST"])]), LIMIT))


@pytest.mark.parametrize("content", [b"", b"x", b"x" * LIMIT])
def test_body_within_limit_arrives_decompressed(client, content):
    assert client.post("/", content=content).content == content
    response = client.post("/", content=gzip.compress(content), headers={"Content-Encoding": "gzip"})
    assert response.content == content and response.headers["encoded"] == "no"


def test_body_above_limit_is_refused(client):
    assert client.post("/", content=b"x" * (LIMIT + 1)).status_code == 413
    assert client.post("/", content=iter([b"x" * LIMIT, b"x"])).status_code == 413


def test_body_decompression_bomb_is_refused_within_memory(client):
    bomb = gzip.compress(bytes(100 * LIMIT))
    tracemalloc.start()
    try:
        assert client.post("/", content=bomb, headers={"Content-Encoding": "gzip"}).status_code == 413
        assert tracemalloc.get_traced_memory()[1] < 20 * LIMIT
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "content",
    [b"not gzip", b"", gzip.compress(b"cut off")[:-3], gzip.compress(b"a") + b"x", gzip.compress(b"a") * 2],
    ids=["not gzip", "nothing", "cut off", "followed by a byte", "two members"],
)
def test_body_other_than_one_gzip_member_is_refused(client, content):
    assert client.post("/", content=content, headers={"Content-Encoding": "gzip"}).status_code == 400
