"""Namespaces that several processes create at the same time."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.typedef import EMPTY_DICT

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


def test_slow_creator_of_namespace_gets_identity_of_the_first(tmp_path):
    settings = {"type": "sql", "warehouse": f"file://{tmp_path}", "uri": f"sqlite:///{tmp_path}/catalog.db"}
    first, writes, may_write = Catalog(**settings), threading.Event(), threading.Event()

    def wait(properties):
        if properties:
            writes.set()
            assert may_write.wait(60)

    class Slow(SqlCatalog):
        """Waits before it writes properties."""

        def create_namespace(self, namespace, properties=EMPTY_DICT):
            wait(properties)
            super().create_namespace(namespace, properties)

        def update_namespace_properties(self, namespace, removals=None, updates=EMPTY_DICT):
            wait(updates)
            return super().update_namespace_properties(namespace, removals, updates)

    class SlowCatalog(Catalog):
        def iceberg(self):
            return Slow(first.iceberg().name, uri=self.uri, warehouse=self.warehouse)

    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(namespace_identity, SlowCatalog(**settings), "shop")
        assert writes.wait(60)
        identity = namespace_identity(first, "shop")
        may_write.set()
        assert slow.result() == identity
    assert namespace_identity(first, "shop") == identity
