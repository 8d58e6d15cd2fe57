"""Make the calls of the running lakehouse with each identity of the deployment, and report each permission.

The identities are its IAM roles and those that replace keys: a service account in Confluent Cloud, a user in Snowflake.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import ConfigError, LakehouseError, UnclearState
from lakehouse.deploy.aws.aws_service import DENIED, AwsError
from lakehouse.deploy.confluent.access import ServiceAccountResource
from lakehouse.deploy.confluent.api_keys import ApiKeyResource
from lakehouse.deploy.credentials import CloudCredentials, RotationCredentials
from lakehouse.deploy.graph import deployment_resources
from lakehouse.deploy.names import ROTATION
from lakehouse.deploy.resource import Outputs, Resource
from lakehouse.deploy.rotation import recorded_outputs
from lakehouse.deploy.snowflake.access import ServiceUserKey
from lakehouse.deploy.verification.canary import Canary
from lakehouse.deploy.verification.deployment_role import CANARY, DeploymentRole, Finding, Probe, Step, Unchecked
from lakehouse.pipeline.table_location import TABLEFLOW_CATALOG, catalog_of, table_of
from resources.confluent.api_client import Forbidden

ROTATES = "it would replace a key. `lakehouse deploy rotate` makes the call"


@dataclass(frozen=True)
class RotationIdentities:
    """The identities, with the credentials that the rotation's IAM role reads."""

    config: Config
    credentials: RotationCredentials

    def steps(self) -> Iterator[Step]:
        """Yield the calls of `lakehouse deploy rotate` that change nothing: a step for each account and user."""
        names = self.credentials.names
        account, user = self._identities
        read: list[tuple[Sequence[Resource[Any]], Outputs]] = []

        def read_credentials() -> None:
            resources = deployment_resources(self.config, self.credentials)
            read.append((resources, recorded_outputs(resources)))

        action, resource = "secretsmanager:GetSecretValue", "the credentials of the rotation's identities"
        yield Probe(names.role(ROTATION), action, resource, read_credentials)
        if not read:
            yield from self.unchecked("its credentials could not be read")
            return
        [(resources, outputs)] = read
        keys = [resource for resource in resources if isinstance(resource, ApiKeyResource)]
        for owned in resources:
            if isinstance(owned, ServiceAccountResource):
                call = partial(_read_keys, owned, [key for key in keys if key.account == owned], outputs)
                yield Probe(account, "ResourceOwner", owned.label, call)
        yield Unchecked(account, "creation and deletion of API keys", ROTATES)
        for pair in resources:
            if isinstance(pair, ServiceUserKey):
                yield Probe(user, "OWNERSHIP", f"Snowflake user '{pair.name}'", partial(_read, pair, outputs))
        yield Unchecked(user, "ALTER USER … SET RSA_PUBLIC_KEY", ROTATES)

    def unchecked(self, reason: str) -> Iterator[Unchecked]:
        """Yield a step without a call for each identity.

        Args:
            reason: The reason why no call can be made.
        """
        for identity in self._identities:
            yield Unchecked(identity, "all its permissions", reason)

    @property
    def _identities(self) -> tuple[str, str]:
        """The names of the service account and the user."""
        names = self.credentials.names
        return names.service_account(ROTATION), names.snowflake("ROTATION_USER")


def _read_keys(account: ServiceAccountResource, keys: list[ApiKeyResource], outputs: Outputs) -> None:
    """Read a service account and its keys.

    Raises:
        Forbidden: The account is not visible.
    """
    owner = account.read(outputs)
    if owner is None:
        raise Forbidden(
            f"Confluent Cloud shows no {account.label} to this key. It was left unchanged. Run `lakehouse deploy "
            f"create`, which grants the role"
        )
    outputs[account] = owner
    for key in keys:
        _read(key, outputs)


def _read(resource: Resource[Any], outputs: Outputs) -> None:
    if resource.read(outputs) is None:
        raise LakehouseError(
            f"{resource.label} does not exist. It was not created. Run `lakehouse deploy create`, which creates it"
        )


SYSTEMS = ("kafka", "schema_registry", "catalog", "glue", "snowflake", "athena", TABLEFLOW_CATALOG)
"""The systems of the environment that a verification calls."""
MAINTENANCE = "maintenance"


@dataclass(frozen=True)
class Verification:
    """The verification of one deployment."""

    config: Config
    credentials: CloudCredentials
    clients: Any
    """Has those of SYSTEMS that the environment has as attributes."""

    def run(self) -> Iterator[Finding]:
        """Yield a finding for each permission. The canary table is removed at the end, also after a failure."""
        if CANARY in {topic.table for topic in self.config.topics.values()}:
            raise ConfigError(
                f"A topic of lakehouse.yaml has the table '{CANARY}', which a verification would remove. Nothing was "
                f"verified. Give the topic another `table`"
            )
        files: list[str] = []
        roles = {purpose: self._role(purpose, files) for purpose in self._purposes}
        refusals = {purpose: reason for purpose, role in roles.items() if (reason := self._refusal(role))}
        # The caller's own credentials remove what maintenance may not, if the caller can write anything at all.
        removers = () if "writer" in refusals else (roles[MAINTENANCE], replace(roles[MAINTENANCE], has_role=False))
        canary = Canary(self.config.namespace, self.clients)
        # What an interrupted verification left. Refusals have their lines below.
        _clean(canary, removers)
        try:
            for purpose, role in roles.items():
                if purpose in refusals:
                    yield Finding(role.name, "all its permissions", "unchecked", refusals[purpose])
                elif purpose == "writer":
                    yield from self._writer(role, canary)
                elif purpose == "reader":
                    yield from self._reader(role, canary)
                elif purpose == MAINTENANCE:
                    yield from _run(role.maintenance())
                else:
                    yield from _run(role.rotation(self._secrets))
            yield from _run(self._rotation_identities(refusals))
        finally:
            problems = _clean(canary, removers)
        for problem in problems:
            yield Finding(
                roles[MAINTENANCE].name, f"removal of {canary.ref}", "failed", f"{problem}. {canary.leftovers}"
            )
        if self._has_tableflow:
            reason = "only Confluent assumes it. `lakehouse deploy plan` reports its catalog integration"
            yield Finding(self.credentials.names.role("confluent"), "all its permissions", "unchecked", reason)

    def _rotation_identities(self, refusals: Mapping[str, str]) -> Iterator[Step]:
        """Yield the steps of the identities, whose credentials only the rotation's IAM role may read.

        Args:
            refusals: The reasons why roles cannot be assumed, by purpose.
        """
        identities = RotationIdentities(self.config, self._rotation_credentials)
        if ROTATION in refusals:
            return identities.unchecked("its credentials need its IAM role, which the caller may not assume")
        if ROTATION not in self._purposes:
            return identities.unchecked("the deployment has no `rotation_principals`, which may read its credentials")
        return identities.steps()

    @property
    def _purposes(self) -> tuple[str, ...]:
        # Maintenance deletes a file that the others read.
        rotation = (ROTATION,) if self.credentials.deployment.rotation_principals else ()
        return ("writer", "reader", MAINTENANCE, *rotation)

    @property
    def _tableflow_topic(self) -> Topic | None:
        return next((topic for topic in self.config.topics.values() if not topic.is_ingested), None)

    @property
    def _has_tableflow(self) -> bool:
        # Glue and the bucket have no table that is in Confluent's storage.
        return bool(self._tableflow_topic) and self.credentials.deployment.tableflow.storage == "own_bucket"

    @cached_property
    def _secrets(self) -> tuple[str, ...]:
        """The secrets of the keys that the deployment needs."""
        resources, names = deployment_resources(self.config, self.credentials), self.credentials.names
        keys = (resource.secret for resource in resources if isinstance(resource, ApiKeyResource))
        return (*keys, names.snowflake_secret, names.snowflake_rotation_secret)

    @property
    def _rotation_credentials(self) -> RotationCredentials:
        credentials = self.credentials
        return RotationCredentials(
            credentials.deployment, confluent_url=credentials.confluent_url, environment=credentials.environment
        )

    def _role(self, purpose: str, files: list[str]) -> DeploymentRole:
        deployment = self.credentials.deployment
        principals = deployment.rotation_principals if purpose == ROTATION else deployment.spark_principals
        return DeploymentRole(self.credentials.names, self.config.namespace, purpose, bool(principals), files)

    def _refusal(self, role: DeploymentRole) -> str:
        """Return why the caller may not assume the role; empty if it may."""
        try:
            role.service("sts").call("get_caller_identity")
        except AwsError as error:
            if error.code not in DENIED:
                raise
            principals = "rotation_principals" if role.purpose == ROTATION else "spark_principals"
            return (
                f"the caller may not assume it. Run `lakehouse deploy verify` with a --profile that is in "
                f"`{principals}` ({error})"
            )
        return ""

    def _writer(self, role: DeploymentRole, canary: Canary) -> Iterator[Finding]:
        # The secrets of Confluent's state are optional, and created by hand.
        state = self.config.environments[self.credentials.environment].get("confluent_cloud", {})
        used = (*self._secrets, state.get("secret"), state.get("tableflow_secret"))
        yield from _run(role.secrets(tuple(name for name in self.credentials.names.ingestion_secrets if name in used)))
        topics = tuple(sorted({topic.topic for topic in self.config.topics.values()}))
        yield Probe(role.name, "a description of the topics", "Kafka", lambda: self._describe(topics)).run()
        yield Probe(
            role.name, "a look-up", "the schema registry", lambda: self.clients.schema_registry.subjects(1)
        ).run()
        yield canary.write(role.name).run()
        yield from _run(role.writer())
        yield from self._tableflow(role)
        yield from self._stored_by_confluent(role)

    def _reader(self, role: DeploymentRole, canary: Canary) -> Iterator[Finding]:
        yield from _run(role.reader())
        yield from _run(canary.read(role.name, self.credentials.names.role("snowflake")))
        yield from self._tableflow(role)

    def _tableflow(self, role: DeploymentRole) -> Iterator[Finding]:
        topic = self._tableflow_topic
        if topic is not None and self._has_tableflow:
            try:
                database, table = table_of(self.config, topic, self.clients).identifier
            except LakehouseError as error:
                yield Finding(role.name, "glue:GetTable on Tableflow's tables", "unchecked", str(error))
                return
            yield from _run(role.tableflow(database, table))

    def _stored_by_confluent(self, role: DeploymentRole) -> Iterator[Finding]:
        topic = self._tableflow_topic
        if topic is None or self._has_tableflow:
            return
        if not hasattr(self.clients, TABLEFLOW_CATALOG):
            reason = "the environment has no `tableflow_catalog`, which `lakehouse deploy environment` prints"
            yield Finding(role.name, "Tableflow's catalog", "unchecked", reason)
            return
        yield Probe(
            role.name,
            "a look-up",
            "Tableflow's catalog",
            lambda: catalog_of(topic, self.clients).load(table_of(self.config, topic, self.clients)),
        ).run()

    def _describe(self, topics: tuple[str, ...]) -> None:
        missing = sorted(set(topics) - set(self.clients.kafka.describe(topics)))
        if missing:
            raise LakehouseError(
                f"Kafka lists no topic {', '.join(missing)}. It was not created. Create it with `lakehouse deploy "
                f"create`, or let the account of ingestion describe it"
            )


def _run(steps: Iterable[Step]) -> Iterator[Finding]:
    for step in steps:
        yield step.run()


def _clean(canary: Canary, removers: Sequence[DeploymentRole]) -> list[str]:
    """Remove the canary table with the first role that is allowed to, and return what could not be removed."""
    refusal: list[str] = []
    for role in removers:
        try:
            return canary.remove(role)
        except UnclearState:
            raise
        except LakehouseError as error:
            refusal = [str(error)]
    return refusal
