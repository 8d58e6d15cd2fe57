"""The cache of Java artefacts, with a Maven repository served from a folder."""

import hashlib
import http.server
import io
import re
import tarfile
import threading
from functools import partial
from importlib.metadata import version

import pytest

from lakehouse.core.errors import LakehouseError
from lakehouse.local import jars


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A folder that is served as a Maven repository, with cache and lock in the test's folder."""
    folder = tmp_path / "repository"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("LAKEHOUSE_MAVEN_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("LAKEHOUSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "LOCK", tmp_path / "jars.lock")
    yield folder
    server.shutdown()
    server.server_close()
    thread.join()


def publish(folder, path, content, *, lock, server="s3"):
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    with lock.open("a") as lines:
        lines.write(f"{server} {hashlib.sha256(content).hexdigest()} {len(content)} {path}\n")


def test_lock_is_complete():
    locked = jars.locked()
    assert {jar.server for jar in locked} == {"kafka", "registry", "s3", "spark"}
    assert all(len(jar.sha256) == 64 and jar.bytes > 0 for jar in locked)
    assert len({jar.maven_path for jar in locked}) == len(locked)


def test_lock_versions_match_except_explained_ones():
    pyspark = version("pyspark")
    scala, spark_line = "_2.13", pyspark.rpartition(".")[0]
    locked = {
        (jar.server, artifact): version for jar in jars.locked() for _, artifact, version, *_ in [jar.coordinates]
    }
    assert len(locked) == len(jars.locked()), "a server has one artefact in two versions"
    spark = {artifact: version for (server, artifact), version in locked.items() if artifact.startswith("spark-")}
    other = {artifact: version for artifact, version in spark.items() if version != pyspark}
    assert all(artifact.endswith(scala) for artifact in spark)
    assert ("spark", f"iceberg-spark-runtime-{spark_line}{scala}") in locked
    kafka = {version for (server, artifact), version in locked.items() if server == "kafka" and "kafka" in artifact}
    assert kafka == {locked["kafka", "kafka-clients"]}
    shared = {artifact for server, artifact in locked if sum(name == artifact for _, name in locked) > 1}
    comments = "".join(line for line in jars.LOCK.read_text().splitlines() if line.startswith("#"))
    explained = dict(re.findall(r"#   (\S+?)(?: ([\d.]+))?: ", comments))
    assert explained == {**other, **dict.fromkeys(shared, "")}


@pytest.mark.parametrize(
    "path, coordinates",
    [
        ("org/example/a-b/1.0/a-b-1.0.jar", ("org.example", "a-b", "1.0", "", "jar")),
        ("io/x/app/3.3.3/app-3.3.3-all.tar.gz", ("io.x", "app", "3.3.3", "all", "tar.gz")),
        ("org/x/p/4.1/p-4.1-jar-with-dependencies.jar", ("org.x", "p", "4.1", "jar-with-dependencies", "jar")),
    ],
)
def test_coordinates_are_parsed_from_path(path, coordinates):
    assert jars.Jar("s3", "", 1, path).coordinates == coordinates


def test_fetch_downloads_only_once(repository, monkeypatch):
    publish(repository, "org/x/p/1/p-1.jar", b"good", lock=jars.LOCK)
    jars.fetch(["s3"])
    assert [path.read_bytes() for path in jars.paths("s3")] == [b"good"]
    monkeypatch.setenv("LAKEHOUSE_MAVEN_URL", "http://127.0.0.1:9")
    jars.fetch(["s3"])
    assert jars.missing() == []


def test_paths_before_fetch_is_refused(repository):
    publish(repository, "org/x/p/1/p-1.jar", b"good", lock=jars.LOCK)
    with pytest.raises(LakehouseError, match="1 Java artifacts of s3 are not in .*p-1.jar first"):
        jars.paths("s3")


def test_fetch_skips_artefacts_of_other_servers(repository):
    publish(repository, "org/x/p/1/p-1.jar", b"good", lock=jars.LOCK)
    publish(repository, "org/x/q/1/q-1.jar", b"other", lock=jars.LOCK, server="spark")
    jars.fetch(["s3"])
    assert [jar.server for jar in jars.missing()] == ["spark"]


def test_fetch_wrong_hash_is_refused_and_not_kept(repository):
    publish(repository, "org/x/p/1/p-1.jar", b"good", lock=jars.LOCK)
    (repository / "org/x/p/1/p-1.jar").write_bytes(b"evil")
    with pytest.raises(LakehouseError, match="p-1.jar differs from jars.lock"):
        jars.fetch(["s3"])
    assert [file for file in (jars.cache() / "jars").rglob("*") if file.is_file()] == []


def test_fetch_missing_artefact_raises_one_sentence(repository):
    publish(repository, "org/x/p/1/p-1.jar", b"good", lock=jars.LOCK)
    (repository / "org/x/p/1/p-1.jar").unlink()
    with pytest.raises(LakehouseError, match=r"p-1.jar could not be downloaded .* \(not found\)"):
        jars.fetch(["s3"])


def test_fetch_changed_file_is_downloaded_again(repository):
    publish(repository, "org/x/p/1/p-1.jar", b"good", lock=jars.LOCK)
    jars.fetch(["s3"])
    (path,) = jars.paths("s3")
    path.write_bytes(b"bad!")  # of the same size
    assert [jar.path for jar in jars.missing()] == [path]
    jars.fetch(["s3"])
    assert path.read_bytes() == b"good"


def test_fetch_partly_unpacked_archive_is_not_used(repository):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        member = tarfile.TarInfo("lib/a.jar")
        member.size = 3
        tar.addfile(member, io.BytesIO(b"jar"))
    publish(repository, "org/x/p/1/p-1-all.tar.gz", archive.getvalue(), lock=jars.LOCK, server="registry")
    interrupted = jars.cache() / "unpacked" / ".new-1"
    interrupted.mkdir(parents=True)
    jars.fetch(["registry"])
    assert (jars.unpacked("registry") / "lib" / "a.jar").read_bytes() == b"jar"
