"""Modules of the project's folder for Spark's Python workers, which do not have that folder."""

import sys
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle

from lakehouse.pipeline.engine_values import Transform

_OWN = {"assets", "lakehouse", "resources", "spark"}
"""Packages of this distribution, which is installed where the workers run."""


def ship(transform: Transform) -> None:
    """Let functions that Spark's workers run take the modules of a transform's folder with them.

    Such functions name the modules that they use, and a worker imports a module by its name. Installed modules are
    installed for the workers too. A file beside lakehouse.yaml exists on the client only, so it is sent by value.
    """
    package = transform.__module__.partition(".")[0]
    folder = _parent(sys.modules[package])
    if package in _OWN or folder is None:
        return
    for name, module in [*sys.modules.items()]:
        parent = _parent(module)
        is_own = name.partition(".")[0] in _OWN
        if parent is not None and parent.is_relative_to(folder) and not is_own and "site-packages" not in parent.parts:
            cloudpickle.register_pickle_by_value(module)


def _parent(module: ModuleType) -> Path | None:
    """Return the folder that contains a module or package, or None for modules that are no files."""
    if paths := [*getattr(module, "__path__", ())]:  # also of packages without __init__.py
        return Path(paths[0]).parent
    file = getattr(module, "__file__", None)
    return Path(file).parent if file else None
