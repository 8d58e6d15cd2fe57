"""Random faults in random order: each record is ingested once."""

import os
import random

from tests.support.faults.chaos import Chaos
from tests.support.faults.moments import LOGGED
from tests.support.topics import Stream

SECONDS = float(os.environ.get("LAKEHOUSE_CHAOS_SECONDS", "40"))
SEED = int(os.environ.get("LAKEHOUSE_CHAOS_SEED") or random.SystemRandom().randrange(2**32))


def test_random_faults_lose_and_duplicate_no_record(stack, resources, tmp_path, capsys):
    streams = [Stream(resources, settings={"mode": mode} | LOGGED) for mode in ("append", "upsert")]
    chaos = Chaos(stack, resources, streams, tmp_path, SEED)
    with capsys.disabled():
        print(f"\nchaos: seed {SEED}; repeat it with LAKEHOUSE_CHAOS_SEED={SEED}")
        chaos.run(SECONDS)
        violations = chaos.judge()

    assert not violations, f"seed {SEED}: {violations}"
    kinds = {kind.partition(":")[0] for kind, times in chaos.fired.items() if times}
    assert kinds >= chaos.faults.keys()
    reports = [report for ingester in chaos.ingesters for report in ingester.reports()]
    errors = [report for report in reports if report.get("error") == "UnclearState"]
    assert not errors, f"a run stopped although nothing was lost: {errors}"
