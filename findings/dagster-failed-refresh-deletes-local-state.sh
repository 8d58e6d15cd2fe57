#!/usr/bin/env bash
# A state-backed component of Dagster loses its state when a refresh fails, if the state is a folder.
#
# Versions: dagster 1.13.27, with the state on the local file system.
# Input:    a component that writes its state to a folder, or to a file; one refresh that succeeds, one that fails.
# Seen:     after the failed refresh, the folder does not exist. The file still has the state of the first refresh.
# Expected: both keep the state until a new one is complete, as states in a versioned storage do.
# Cause:    the refresh removes the folder (shutil.rmtree, errors ignored) before it asks the component for the new state;
#           for a file, that removal fails unnoticed.
# Matters:  state-backed components exist so that definitions load while the system that they describe is away. A refresh
#           in that time, such as a nightly `dg utils refresh-defs-state`, leaves a code location without definitions.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check dagster==1.13.27
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import asyncio
import sys
from pathlib import Path

import dagster as dg
from dagster.components.component.state_backed_component import StateBackedComponent
from dagster.components.utils.defs_state import DefsStateConfig
from dagster_shared.serdes.objects.models.defs_state_info import DefsStateManagementType


class Topics(StateBackedComponent):
    def __init__(self, key, *, in_folder):
        self.key, self.in_folder, self.is_away, self.path = key, in_folder, False, None

    @property
    def defs_state_config(self):
        management = DefsStateManagementType.LOCAL_FILESYSTEM
        return DefsStateConfig(key=self.key, management_type=management, refresh_if_dev=False)

    def write_state_to_path(self, state_path):
        self.path = state_path
        if self.is_away:
            raise ConnectionError("the broker does not answer")
        if self.in_folder:
            state_path.mkdir()
        file = state_path / "topics" if self.in_folder else state_path
        file.write_text("orders")

    def build_defs_from_state(self, context, state_path):
        return dg.Definitions()


project = Path(sys.argv[1], "project")
(project / "shop/defs").mkdir(parents=True)
(project / "pyproject.toml").write_text('[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "shop"\n')
for package in ("shop", "shop/defs"):
    (project / package / "__init__.py").touch()
sys.path.insert(0, str(project))
kept = {}
for kind, in_folder in (("folder", True), ("file", False)):
    component = Topics(f"topics_in_{kind}", in_folder=in_folder)
    asyncio.run(component.refresh_state(project))
    before = component.path.exists()
    component.is_away = True
    try:
        asyncio.run(component.refresh_state(project))
    except ConnectionError as error:
        print(f"{kind}: refresh failed: {error}")
    kept[kind] = (before, component.path.exists())
print(kept)
if kept != {"folder": (True, False), "file": (True, True)}:
    sys.exit("The behaviour changed.")
PYTHON
