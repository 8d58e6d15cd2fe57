"""`make update-locks`: completion of jars.lock."""

import hashlib
import http.server
import threading
from functools import partial

import pytest

from lakehouse.local import jars
from tools import locks

KNOWN = f"spark    {'a' * 64}       123 org/x/known/1/known-1.jar"


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A folder that is served as a Maven repository."""
    folder = tmp_path / "repository"
    folder.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("LAKEHOUSE_MAVEN_URL", f"http://127.0.0.1:{server.server_port}")
        yield folder
        server.shutdown()
        thread.join()


def test_complete_jars_fills_in_missing_hash_only(repository, tmp_path):
    path = "org/example/new/2.0/new-2.0-all.tar.gz"
    (repository / path).parent.mkdir(parents=True)
    (repository / path).write_bytes(b"content")
    lock = tmp_path / "some.lock"
    lock.write_text(f"# A comment.\n{KNOWN}\nregistry - - {path}\n")

    assert locks.complete_jars(lock) == [path]

    known, new = jars.locked(lock=lock)
    assert lock.read_text().splitlines()[:2] == ["# A comment.", KNOWN]
    assert new == jars.Jar("registry", hashlib.sha256(b"content").hexdigest(), 7, path)


def test_complete_jars_complete_lock_needs_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKEHOUSE_MAVEN_URL", "http://127.0.0.1:9")
    lock = tmp_path / "some.lock"
    lock.write_text(KNOWN + "\n")
    assert locks.complete_jars(lock) == []
    assert lock.read_text() == KNOWN + "\n"
