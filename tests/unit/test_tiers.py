"""Tiers of tests: what `make test` runs, how long, and in which processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import tiers
from tools.repository import PROJECT

SCRIPT = "import sys; from tests import run_tier; sys.exit(run_tier.run('tried', [[path] for path in sys.argv[1:]]))"


@pytest.fixture
def start(tmp_path: Path):
    """Return a function that starts a run of test files of one process each, by their contents."""

    def start(*contents: str) -> subprocess.Popen[str]:
        paths = [tmp_path / f"test_{number}.py" for number in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_text(content)
        command = [sys.executable, "-c", SCRIPT, *map(str, paths)]
        return subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    return start


def test_listed_files_exist():
    listed = (*tiers.REST, *tiers.NIGHT, *tiers.CHAOS)
    assert [name for name in listed if not (PROJECT / name).is_file()] == []
    assert len(set(listed)) == len(listed)


@pytest.mark.parametrize("tier, most", [("first", tiers.MOST), ("rest", tiers.MOST_OF_REST)])
def test_tier_has_limited_duration(tier, most):
    assert sum(tiers.durations().get(name, 1) for name in tiers.files(tier)) <= most


@pytest.mark.parametrize("tier", ["first", "rest", "night"])
def test_share_has_each_file_once_and_stacks_that_start_apart(tier):
    names, seconds = tiers.files(tier), tiers.durations()
    parts, groups = tiers.share(names)
    assert sorted(sum([*parts, *groups], [])) == names
    first, second = (sum(seconds.get(name, 1) for name in part) for part in parts)
    rest = sum(seconds.get(name, 1) for group in groups for name in group)
    assert abs(first - second) < rest, "the process that ends first runs the groups meanwhile"
    assert parts[0][0].startswith(tiers.STACK) and not parts[1][0].startswith(tiers.STACK)
    assert not any(name.startswith(tiers.STACK) for group in groups for name in group)


def test_run_fails_if_one_process_does(start):
    run = start("def test_a(): pass", "def test_b(): raise ValueError('reason')")
    output, _ = run.communicate(timeout=200)
    assert run.returncode == 1
    assert "reason" in output
    assert "1 passed" in output.splitlines()[-3]
    assert "1 failed" in output.splitlines()[-2]


def test_run_continues_after_death_of_a_process(tmp_path: Path):
    (tmp_path / "test_a.py").write_text("import os\ndef test_a(): os._exit(1)")
    (tmp_path / "test_b.py").write_text("def test_b(): pass")
    (tmp_path / "test_c.py").write_text("def test_c(): pass\ndef test_d(): pass")
    *part, group = sorted(map(str, tmp_path.iterdir()))
    script = f"import sys; from tests import run_tier; sys.exit(run_tier.run('tried', [{part}], [[{group!r}]]))"
    run = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True)
    assert run.returncode == 1
    died, part_summary, group_summary = run.stdout.splitlines()[-4:-1]
    assert "died in " in died and "test_a.py" in died
    assert "1 passed" in part_summary and "2 passed" in group_summary


def test_run_interrupted_tears_down_in_each_process(start, tmp_path: Path):
    content = """
import pathlib, time, pytest

@pytest.fixture
def server():
    path = pathlib.Path(__file__).with_suffix(".up")
    path.touch()
    yield path
    path.unlink()

def test_hangs(server):
    server.with_suffix(".runs").touch()
    time.sleep(300)
"""
    run = start(content, content)
    while len(list(tmp_path.glob("*.runs"))) < 2:
        assert run.poll() is None
        time.sleep(0.1)
    os.kill(run.pid, signal.SIGINT)
    output, _ = run.communicate(timeout=200)
    assert run.returncode == 2
    assert output.count("KeyboardInterrupt !") == 2
    assert not list(tmp_path.glob("*.up"))
