"""Apache Kafka: a single node that is broker and controller (KRaft), with its data in the state folder."""

import base64
import hashlib
import shutil
import uuid
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from lakehouse.core.errors import LakehouseError
from lakehouse.local import jars
from lakehouse.local.home import Credentials, Home, write_atomically
from lakehouse.local.java import class_path, java, property_value
from lakehouse.local.processes.description import LOOPBACK, Context, Server
from lakehouse.local.processes.process import run_tool
from resources.kafka.jaas import jaas_config

USER, MECHANISM = "lakehouse", "SCRAM-SHA-512"
"""Login of clients if the broker requires it. With SCRAM, an impostor of the broker does not receive the password."""


def uses_sasl(home: Home) -> bool:
    """Return whether the broker requires a password from its clients."""
    return _switch(home).exists()


def use_sasl(home: Home, on: bool) -> None:
    """Set whether the broker of a state folder requires a password from its clients, from its next start on."""
    if on:
        write_atomically(_switch(home), "")
    else:
        _switch(home).unlink(missing_ok=True)


def _switch(home: Home) -> Path:
    return home.path / "secrets" / "kafka_sasl"


def client_variables(home: Home, credentials: Credentials) -> dict[str, str]:
    """Return the environment variables for a client's login. All are set, to override those of another Kafka."""
    sasl = uses_sasl(home)
    return {
        "KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT" if sasl else "PLAINTEXT",
        "KAFKA_SASL_MECHANISM": MECHANISM if sasl else "",
        "KAFKA_SASL_USERNAME": USER if sasl else "",
        "KAFKA_SASL_PASSWORD": credentials.kafka_password if sasl else "",
    }


def server(context: Context) -> Server:
    """Describe the broker."""
    folder = context.home.folder("kafka")
    ports = {name: context.ports[name] for name in ("kafka", "kafka-controller")}
    address = f"{LOOPBACK}:{ports['kafka']}"
    properties = folder / "server.properties"
    libs = class_path(jars.paths("kafka"))

    password, sasl = context.credentials.kafka_password, uses_sasl(context.home)
    settings = _properties(folder / "data", ports["kafka"], ports["kafka-controller"], password if sasl else None)

    def prepare() -> None:
        _format(context.home, libs, password)
        if sasl and not _accepts(context.home, password):
            raise LakehouseError(
                f"Kafka's data in {folder / 'data'} was created by an earlier version, or with another password, so"
                " that no client could log in. Kafka was not started. Use another LAKEHOUSE_HOME with --kafka-sasl, or"
                " run `lakehouse up --no-kafka-sasl`"
            )
        write_atomically(properties, settings)

    def ready() -> bool:
        config: dict[str, str | int | float | bool] = {"bootstrap.servers": address, "log_level": 0}
        if sasl:
            config |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": MECHANISM}
            config |= {"sasl.username": USER, "sasl.password": password}
        try:
            return bool(AdminClient(config).list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    options = ("-XX:TieredStopAtLevel=1", "-Dlog4j2.level=INFO")
    return Server(
        name="kafka",
        command=java(*options, "-cp", libs, "kafka.Kafka", str(properties), heap="384m", archive="kafka"),
        folder=folder,
        address=address,
        ready=ready,
        # So that other settings change the fingerprint, and restart the broker.
        env={"LAKEHOUSE_KAFKA_SETTINGS": hashlib.sha256(settings.encode()).hexdigest()},
        ports=ports,
        prepare=prepare,
    )


def _properties(data: Path, port: int, controller_port: int, password: str | None = None) -> str:
    """Return the settings of a single node. Internal topics have one replica and, for a fast start, one partition.

    The defaults of the cleaner's buffer, 128 MB, and of the request queue, 500, are for large brokers. By default, the
    controller also writes an empty record every half second, for the lag of brokers on other nodes: this took almost
    half of an idle node's CPU time.

    Args:
        data: Folder of the records.
        port: Port for clients.
        controller_port: Port for the node itself.
        password: Password for both ports; None to accept everyone.
    """
    protocol = "SASL_PLAINTEXT" if password else "PLAINTEXT"
    return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{LOOPBACK}:{controller_port}
listeners={protocol}://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}
advertised.listeners={protocol}://{LOOPBACK}:{port}
inter.broker.listener.name={protocol}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:{protocol},{protocol}:{protocol}
log.dirs={property_value(data)}
auto.create.topics.enable=false
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
metadata.max.idle.interval.ms=0
num.network.threads=2
num.io.threads=4
log.cleaner.threads=1
log.cleaner.backoff.ms=1000
log.cleaner.dedupe.buffer.size=4194304
queued.max.requests=200
{_sasl(password) if password else ""}"""


def _sasl(password: str) -> str:
    """Return the settings of listeners with a password. The controller stores the users of SCRAM, so it cannot itself
    authenticate by SCRAM."""
    scram, plain = jaas_config(MECHANISM, USER, password), jaas_config("PLAIN", USER, password)
    return f"""\
sasl.enabled.mechanisms={MECHANISM}
sasl.mechanism.inter.broker.protocol={MECHANISM}
sasl.mechanism.controller.protocol=PLAIN
listener.name.sasl_plaintext.{MECHANISM.lower()}.sasl.jaas.config={scram}
listener.name.controller.sasl.enabled.mechanisms=PLAIN
listener.name.controller.plain.sasl.jaas.config={plain.removesuffix(";")} user_{USER}="{password}";
"""


def _format(home: Home, libs: str, password: str) -> None:
    """Format an empty data folder with a new cluster id and the user. It is formatted elsewhere and then moved, so a
    partly formatted folder is never used.
    """
    folder = home.folder("kafka")
    data, fresh = folder / "data", folder / "data.new"
    if (data / "meta.properties").exists():
        return
    if data.exists() and any(data.iterdir()):
        raise LakehouseError(
            f"Kafka's data folder {data} has files but no meta.properties, which contains the id of their cluster."
            " Nothing was changed. Restore that file, or move the folder away to start with empty topics"
        )
    shutil.rmtree(fresh, ignore_errors=True)
    properties = write_atomically(folder / "format.properties", _properties(fresh, port=9092, controller_port=9093))
    # A random id may begin with a hyphen: after '=' it is not parsed as an option.
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    # Other users can see the arguments of a process, so the password is in a file, which argparse4j reads by `@`.
    user = write_atomically(folder / "format.user", f"--add-scram\n{MECHANISM}=[name={USER},password={password}]\n")
    tool = ("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "--config", str(properties), f"@{user}")
    run_tool("kafka", home, java("-XX:TieredStopAtLevel=1", "-cp", libs, *tool, heap="128m", archive="kafka-format"))
    user.unlink()
    write_atomically(_digest_file(home), _digest(password))
    if data.exists():
        data.rmdir()
    fresh.rename(data)


def _digest_file(home: Home) -> Path:
    """Return the file with the hash of the password that the data folder was formatted with."""
    return home.folder("kafka") / "password.sha256"


def _accepts(home: Home, password: str) -> bool:
    file = _digest_file(home)
    return file.exists() and file.read_text() == _digest(password)


def _digest(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()
