"""Renew tests/durations.json with the last runs of `make test` and `make test-rest`: `make durations`."""

from __future__ import annotations

import json
from collections import Counter
from xml.etree import ElementTree

from tests.run_tier import PROJECT, REPORTS
from tests.tiers import DURATIONS, durations

measured: Counter[str] = Counter()
for report in REPORTS.glob("*.xml"):
    for case in ElementTree.parse(report).iter("testcase"):
        if "file" in case.attrib:
            measured[case.attrib["file"]] += float(case.attrib["time"])
kept = {name: seconds for name, seconds in durations().items() if (PROJECT / name).exists()}
rounded = {name: round(seconds, 1) for name, seconds in measured.items()}
DURATIONS.write_text(json.dumps(kept | rounded, indent=1, sort_keys=True) + "\n")
print(f"{len(measured)} files were measured: {sum(measured.values()):.0f} s")
