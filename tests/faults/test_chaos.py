"""Everything at once: whatever goes wrong and in whatever order, each record arrives once."""

import os
import random

from chaos import Chaos
from moments import LOGGED
from support import Stream

SECONDS = float(os.environ.get("LAKEHOUSE_CHAOS_SECONDS", "40"))
SEED = int(os.environ.get("LAKEHOUSE_CHAOS_SEED") or random.SystemRandom().randrange(2**32))


def test_no_schedule_of_faults_loses_or_duplicates_a_record(stack, resources, tmp_path, capsys):
    streams = [Stream(resources, settings={"mode": mode} | LOGGED) for mode in ("append", "upsert")]
    chaos = Chaos(stack, resources, streams, tmp_path, SEED)
    with capsys.disabled():
        print(f"\nchaos: seed {SEED}; repeat it with LAKEHOUSE_CHAOS_SEED={SEED}")
        chaos.run(SECONDS)
        wrong = chaos.judge()

    assert not wrong, f"seed {SEED}: {wrong}"
    kinds = {kind.partition(":")[0] for kind, times in chaos.fired.items() if times}
    assert kinds >= chaos.faults.keys()
    errors = [said for ingester in chaos.ingesters for said in ingester.said() if said.get("error") == "UnclearState"]
    assert not errors, f"a run stopped although nothing was lost: {errors}"
