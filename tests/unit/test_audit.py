"""`make audit`: secrets, known vulnerabilities, the bill of materials, and reports of what was not checked."""

import http.server
import io
import json
import subprocess
import tarfile
import threading
import zipfile

import pytest
import requests

from lakehouse.local import jars
from tools import audit, leaks, sbom
from tools.audit import Outcome

# In two parts, so that the audit does not report this file.
CANARIES = {
    "AWS": "AKIA" + "QYLPMN5HHHFPZAM2",
    "Confluent": "cflt" + "r3dAbZ09+/" * 6,
    "GitHub": "ghp_" + "a1B2c3D4e5F6a1B2c3D4e5F6a1B2c3D4e5F6",
    "private key": "-----BEGIN " + "PRIVATE KEY-----",
    "Slack": "https://hooks.slack.com/services/" + "T01ABCDEF/B01ABCDEF/abcdefghijklmnopqrstuvwx",
}


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init")
    (folder / "harmless.py").write_text("answer = 42\n")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "First")
    return folder


@pytest.fixture
def baseline(tmp_path):
    file = tmp_path / "baseline"
    file.write_text("# Nothing is accepted.\n")
    return file


@pytest.mark.parametrize("canary", CANARIES.values(), ids=CANARIES)
def test_leaks_secret_in_tracked_file_is_found(checkout, baseline, canary):
    (checkout / "settings.py").write_text(f"# first line\nvalue = '{canary}'\n")
    git(checkout, "add", ".")
    (leak, *_) = leaks.leaks(checkout, baseline)
    assert leak.where == "settings.py:2"
    assert canary not in str(leak)


def test_leaks_secret_removed_by_later_commit_is_found(checkout, baseline):
    (checkout / "settings.py").write_text(CANARIES["AWS"])
    git(checkout, "add", ".")
    git(checkout, "commit", "-m", "Second")
    git(checkout, "rm", "settings.py")
    git(checkout, "commit", "-m", "Third")
    (leak,) = leaks.leaks(checkout, baseline)
    assert leak.where.startswith("commit ")


def test_leaks_assigned_password_is_found_outside_tests(checkout, baseline):
    (checkout / "tests").mkdir()
    for name in ("settings.py", "tests/test_settings.py"):
        (checkout / name).write_text(f"# {name}\nadmin_password = 'k8s-Fq{name[:3]}Zt92hw'\n")
    git(checkout, "add", ".")
    assert [leak.where for leak in leaks.leaks(checkout, baseline)] == ["settings.py:2"]


def test_leaks_baselined_secret_is_not_reported(checkout, baseline):
    (checkout / "settings.py").write_text(CANARIES["AWS"])
    git(checkout, "add", ".")
    (leak,) = leaks.leaks(checkout, baseline)
    baseline.write_text(f"{leak.fingerprint} an example\n")
    assert leaks.leaks(checkout, baseline) == []


def test_run_exit_code_distinguishes_wrong_from_unchecked(capsys):
    def fine():
        return Outcome()

    def wrong():
        return Outcome(wrong=["a bad thing"], unchecked=["another"])

    def partly_done():
        return Outcome(unchecked=["the rest"])

    assert [audit.run([fine]), audit.run([fine, partly_done]), audit.run([partly_done, wrong])] == [0, 3, 1]
    output = capsys.readouterr().out
    assert "part  partly done\n      NOT CHECKED: the rest\n" in output
    assert "WRONG" in output and "a bad thing" in output


class Osv(http.server.BaseHTTPRequestHandler):
    """An OSV server (https://google.github.io/osv.dev/post-v1-querybatch/), with two pages for one package."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.query_counts.append(len(body["queries"]))
        results = [self.result(query) for query in body["queries"]]
        response = json.dumps({"results": results}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(response)))
        self.end_headers()
        self.wfile.write(response)

    @staticmethod
    def result(query):
        match query["package"]["purl"], query.get("page_token"):
            case "pkg:maven/com.h2database/h2@2.1.210", None:
                return {"vulns": [{"id": "GHSA-45hx-wfhj-473x", "modified": "2026-01-01"}], "next_page_token": "more"}
            case "pkg:maven/com.h2database/h2@2.1.210", "more":
                return {"vulns": [{"id": "CVE-2022-45868"}]}
            case _:
                return {}

    def log_message(self, *args):
        pass


@pytest.fixture
def osv():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Osv) as server:
        server.query_counts = []
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_known_many_packages_queries_all_pages(osv):
    packages = [f"pkg:pypi/some-{number}@1.0" for number in range(1000)]
    urls = [*packages, "pkg:maven/com.h2database/h2@2.1.210?classifier=all&type=tar.gz", "pkg:generic/oro@2.0.8"]
    known = audit.known_vulnerabilities(urls, osv.url)
    assert known == {"pkg:maven/com.h2database/h2@2.1.210": ["GHSA-45hx-wfhj-473x", "CVE-2022-45868"]}
    assert sum(osv.query_counts) == 1002 and max(osv.query_counts) <= 1000


def test_known_unreachable_database_raises():
    with pytest.raises(requests.RequestException):
        audit.known_vulnerabilities(["pkg:pypi/some@1"], "http://127.0.0.1:9")


def jar_file(path, *artefacts):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as jar:
        for group, artifact, version in artefacts:
            text = f"#Created by Maven\nversion={version}\ngroupId={group}\nartifactId={artifact}\n"
            jar.writestr(f"META-INF/maven/{group}/{artifact}/pom.properties", text)


def test_jar_contents_lists_jar_and_shaded_artefacts(tmp_path):
    jar_file(tmp_path / "fat-1.jar", ("org.x", "fat", "1"), ("com.google.guava", "guava", "33.0"))
    assert [str(url) for url in sbom.artefacts_of_jar(tmp_path / "fat-1.jar")] == [
        "pkg:maven/org.x/fat@1",
        "pkg:maven/com.google.guava/guava@33.0",
    ]


def test_jar_contents_without_metadata_uses_file_name(tmp_path):
    jar_file(tmp_path / "jakarta.oro_2.13-2.0.8.jar")
    assert [str(url) for url in sbom.artefacts_of_jar(tmp_path / "jakarta.oro_2.13-2.0.8.jar")] == [
        "pkg:generic/jakarta.oro_2.13@2.0.8"
    ]


def test_sbom_lists_wheels_jars_and_their_contents(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKEHOUSE_CACHE", str(tmp_path / "cache"))
    paths = [
        "org/x/fat/1/fat-1.jar",
        "io/x/app/2/app-2-all.tar.gz",
        "org/x/plain/1/plain-1.jar",
        "org/x/absent/1/absent-1.jar",
    ]
    lock = tmp_path / "jars.lock"
    lock.write_text("".join(f"some {number:064x} 1 {path}\n" for number, path in enumerate(paths)))
    fat, archive, plain, _ = (jar.path for jar in jars.locked(lock=lock))
    jar_file(fat, ("org.x", "fat", "1"), ("com.google.guava", "guava", "33.0"))
    jar_file(plain)
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:gz") as tar:
        listing = b"com.h2database:h2::jar:2.4.240\nio.x:lib:linux:jar:1\n"
        member = tarfile.TarInfo("./quarkus-app-dependencies.txt")
        member.size = len(listing)
        tar.addfile(member, io.BytesIO(listing))

    unread = sbom.write(tmp_path / "sbom.json", lock)

    urls = set(sbom.package_urls(tmp_path / "sbom.json"))
    assert unread == ["absent-1.jar"]
    assert urls >= {
        "pkg:maven/org.x/fat@1",
        "pkg:maven/com.google.guava/guava@33.0",
        "pkg:maven/io.x/app@2?classifier=all&type=tar.gz",
        "pkg:maven/com.h2database/h2@2.4.240",
        "pkg:maven/org.x/absent@1",
    }
    assert any(url.startswith("pkg:pypi/pyspark@") for url in urls)
    assert "pkg:maven/org.apache.spark/spark-core_2.13@4.1.1" in urls  # one of pyspark's own jars
    document = json.loads((tmp_path / "sbom.json").read_text())
    (jar,) = [component for component in document["components"] if component.get("purl") == "pkg:maven/org.x/fat@1"]
    (simple,) = [
        component for component in document["components"] if component.get("purl") == "pkg:maven/org.x/plain@1"
    ]
    assert "components" not in simple  # a jar is not listed as its own component
    assert jar["hashes"] == [{"alg": "SHA-256", "content": f"{0:064x}"}]
