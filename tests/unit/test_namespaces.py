"""Namespaces that several processes create at the same time."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from resources.iceberg.catalog import Catalog
from resources.iceberg.namespace_identity import namespace_identity

PROCESSES = 2


@pytest.mark.parametrize("number", range(3))
def test_namespace_identity_is_one_for_all_that_create_it(tmp_path, number):
    settings = {"type": "sql", "warehouse": f"file://{tmp_path}", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    Catalog(**settings).iceberg()
    start = threading.Barrier(PROCESSES)

    def created(_: int) -> str:
        catalog = Catalog(**settings)
        catalog.iceberg()
        start.wait()
        return namespace_identity(catalog, "shop")

    with ThreadPoolExecutor(PROCESSES) as pool:
        identities = set(pool.map(created, range(PROCESSES)))

    assert len(identities) == 1
