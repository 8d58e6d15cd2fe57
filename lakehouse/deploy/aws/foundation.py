"""The objects that tables need in AWS besides a bucket: secrets, Glue database and Athena workgroup."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from lakehouse.config.deployment import DEPLOYMENT_TAG
from lakehouse.config.model import Config
from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.aws.aws_resource import AwsResource
from lakehouse.deploy.aws.aws_service import AwsError, Response
from lakehouse.deploy.aws.iam_policies import Tables, tableflow_tables
from lakehouse.deploy.names import Names
from lakehouse.deploy.resource import EXISTED, Outputs, Resource, Updatable
from resources.aws.secrets_manager import RECOVERY_DAYS
from resources.confluent.clusters import Cluster
from resources.confluent.organization import Environment

WAREHOUSE = "warehouse"
"""The prefix of the bucket under which Spark's tables are, by namespace."""
RESULTS = "athena"
"""The prefix of the bucket under which Athena keeps query results."""


class TableflowCluster(NamedTuple):
    """References to the Kafka cluster whose topics Tableflow keeps as tables in a bucket of the account."""

    environment: Resource[Environment]
    cluster: Resource[Cluster]
    bucket: str

    def tables(self, outputs: Outputs) -> Tables:
        """Return the tables that Tableflow creates; their location contains Confluent's ids."""
        environment, cluster = outputs[self.environment], outputs[self.cluster]
        return tableflow_tables(self.bucket, environment.organization_id, environment.id, cluster.id)


def location(names: Names, namespace: str) -> str:
    """Return the s3:// URI under which a namespace's tables are."""
    return f"s3://{names.bucket}/{WAREHOUSE}/{namespace}"


def results(names: Names) -> str:
    """Return the s3:// URI of Athena's results."""
    return f"s3://{names.bucket}/{RESULTS}/"


def spark_tables(config: Config) -> Tables:
    """Return the tables that Spark creates."""
    return Tables(config.namespace, f"{WAREHOUSE}/{config.namespace}")


@dataclass(frozen=True, repr=False)
class DeploymentSecrets(AwsResource[tuple[str, ...]]):
    """The resource `aws/secrets`. Its state is the names of the secrets."""

    address = "aws/secrets"

    @property
    def label(self) -> str:
        return f"secrets under '{self.names.confluent_secrets}/' and '{self.names.snowflake_secret}'"

    def read(self, outputs: Outputs) -> tuple[str, ...] | None:
        return self._names() or None

    def create(self, outputs: Outputs) -> tuple[str, ...]:
        # The resource that has a secret's value creates it.
        return ()

    def delete(self, outputs: Outputs, current: tuple[str, ...]) -> None:
        # For `RECOVERY_DAYS`, each can be restored, as `lakehouse deploy create` does.
        for name in current:
            if self._described(name):
                try:
                    self.service("secretsmanager").find(
                        "delete_secret", SecretId=name, RecoveryWindowInDays=RECOVERY_DAYS
                    )
                except AwsError:
                    # The client repeats a call whose response was lost, and AWS refuses to delete a deleted secret.
                    if self._described(name):
                        raise
        for name in current:
            self.wait_until_gone(f"secret '{name}'", partial(self._described, name))

    def _names(self) -> tuple[str, ...]:
        # The known secrets are looked up by name, because the list, which has all others, lags behind by minutes
        # (Secrets Manager, ListSecrets).
        known = {*self.names.secrets}
        return tuple(name for name in sorted(known | self._listed()) if self._is_owned(name))

    def _listed(self) -> set[str]:
        path, name = f"{self.names.confluent_secrets}/", self.names.snowflake_secret
        begin = [{"Key": "name", "Values": [path, name]}]
        secrets = self.service("secretsmanager").items("list_secrets", "SecretList", Filters=begin)
        return {secret["Name"] for secret in secrets if secret["Name"].startswith(path) or secret["Name"] == name}

    def _is_owned(self, name: str) -> bool:
        secret = self._described(name)
        if secret is None:
            return False
        tag = f"--secret-id {name} --tags Key={DEPLOYMENT_TAG},Value={self.names.deployment}"
        self.require_ownership(
            f"secret '{name}'",
            secret.get("Tags", ()),
            f"aws secretsmanager tag-resource --region {self.names.region} {tag}",
        )
        return True

    def _described(self, name: str) -> Response | None:
        """Return the description of a secret in AWS; None if it does not exist or was deleted."""
        secret = self.service("secretsmanager").find("describe_secret", SecretId=name)
        return None if secret is None or "DeletedDate" in secret else secret


KEPT = ("Description", "Parameters", "CreateTableDefaultPermissions")
"""Properties that an update deletes unless it contains them."""


@dataclass(frozen=True, kw_only=True, repr=False)
class GlueDatabase(AwsResource[Response], Updatable[Response]):
    """`aws/glue_database` of Spark's tables, whose state is Glue's description."""

    address = "aws/glue_database"
    holds_data = True
    namespace: str

    @property
    def retained_because(self) -> str:
        return EXISTED if self._is_existing else ""

    @property
    def label(self) -> str:
        return f"Glue database '{self.namespace}'"

    def read(self, outputs: Outputs) -> Response | None:
        glue = self.service("glue")
        response = glue.find("get_database", **self._database)
        if self._is_existing:
            return self._usable(response)
        if response is None:
            return None
        arn = f"arn:aws:glue:{self.names.region}:{self.names.account}:database/{self.namespace}"
        tag = f"aws glue tag-resource --resource-arn {arn} --tags-to-add {DEPLOYMENT_TAG}={self.names.deployment}"
        self.require_ownership(self.label, glue.call("get_tags", ResourceArn=arn)["Tags"], tag)
        database: Response = response["Database"]
        return database

    def create(self, outputs: Outputs) -> Response:
        def create() -> None:
            self.service("glue").call(
                "create_database",
                CatalogId=self.names.account,
                DatabaseInput={"Name": self.namespace, "LocationUri": self._location},
                Tags={DEPLOYMENT_TAG: self.names.deployment},
            )

        return self.create_and_read(create, outputs)

    def diff(self, outputs: Outputs, current: Response) -> list[str]:
        uri = current.get("LocationUri", "")
        same = uri.rstrip("/") == self._location
        return [] if same else [f"its location is '{uri}', not {self._location}"]

    def update(self, outputs: Outputs, current: Response) -> Response:
        # Existing tables stay where they are.
        right = {"Name": self.namespace, "LocationUri": self._location}
        self.service("glue").call(
            "update_database",
            DatabaseInput=right | {key: current[key] for key in KEPT if key in current},
            **self._database,
        )
        return current | right

    def delete(self, outputs: Outputs, current: Response) -> None:
        # The registrations of its tables go with it. Files stay in the bucket.
        glue = self.service("glue")
        tables = {"CatalogId": self.names.account, "DatabaseName": self.namespace}
        for table in list(glue.items("get_tables", "TableList", **tables)):
            glue.find("delete_table", Name=table["Name"], **tables)
        glue.find("delete_database", **self._database)
        self.wait_until_gone(self.label, lambda: glue.find("get_database", **self._database))

    def _usable(self, response: Response | None) -> Response:
        """Require that an existing database has its tables where the deployment's roles may write."""
        if response is None:
            raise LakehouseError(
                f"There is no {self.label} in region {self.names.region}. None was created in its place. Correct "
                f"`existing.glue_database` in lakehouse.yaml"
            )
        database: Response = response["Database"]
        uri, needed = database.get("LocationUri", ""), self._location
        if uri.rstrip("/") != needed:
            raise LakehouseError(
                f"Tables of the {self.label} are created at '{uri}', where the deployment's roles may not write. "
                f"It was left unchanged. Set its location to {needed}, or name another `existing.glue_database`"
            )
        return database

    @property
    def _is_existing(self) -> bool:
        return bool(self.names.existing.glue_database)

    @property
    def _database(self) -> dict[str, str]:
        return {"CatalogId": self.names.account, "Name": self.namespace}

    @property
    def _location(self) -> str:
        return location(self.names, self.namespace)


@dataclass(frozen=True, repr=False)
class Workgroup(AwsResource[Response], Updatable[Response]):
    """`aws/workgroup`, whose state is Athena's description."""

    address = "aws/workgroup"
    kms_key: str = ""
    """ARN of the key that encrypts results; empty for S3's own keys."""

    @property
    def label(self) -> str:
        return f"Athena workgroup '{self.names.workgroup}'"

    def read(self, outputs: Outputs) -> Response | None:
        current = self._get()
        if current is None:
            return None
        arn = f"arn:aws:athena:{self.names.region}:{self.names.account}:workgroup/{self.names.workgroup}"
        command = (
            f"aws athena tag-resource --resource-arn {arn} --tags Key={DEPLOYMENT_TAG},Value={self.names.deployment}"
        )
        tags = self.service("athena").call("list_tags_for_resource", ResourceARN=arn)["Tags"]
        self.require_ownership(self.label, tags, command)
        return current

    def create(self, outputs: Outputs) -> Response:
        def create() -> None:
            configuration = {"ResultConfiguration": self._results, "EnforceWorkGroupConfiguration": True}
            self.service("athena").call(
                "create_work_group", Name=self.names.workgroup, Configuration=configuration, Tags=self.tags
            )

        return self.create_and_read(create, outputs)

    def diff(self, outputs: Outputs, current: Response) -> list[str]:
        configuration = current.get("Configuration", {})
        has = configuration.get("ResultConfiguration", {})
        wrong = {
            f"results go to '{has.get('OutputLocation', '')}'": has.get("OutputLocation") != results(self.names),
            "results are not encrypted": not has.get("EncryptionConfiguration"),
            f"results are not encrypted with {self.kms_key}": bool(self.kms_key)
            and has.get("EncryptionConfiguration", {}).get("KmsKey") != self.kms_key,
            "queries may choose settings of their own": not configuration.get("EnforceWorkGroupConfiguration"),
            "it is disabled": current.get("State") != "ENABLED",
        }
        return [phrase for phrase, is_wrong in wrong.items() if is_wrong]

    def update(self, outputs: Outputs, current: Response) -> Response:
        has = current.get("Configuration", {}).get("ResultConfiguration", {}).get("EncryptionConfiguration")
        encryption = {"EncryptionConfiguration": has} if has and not self.kms_key else {}
        updates = {"ResultConfigurationUpdates": self._results | encryption, "EnforceWorkGroupConfiguration": True}
        self.service("athena").call(
            "update_work_group", WorkGroup=self.names.workgroup, ConfigurationUpdates=updates, State="ENABLED"
        )
        return {**current, **self.read_existing(outputs)}

    def retained(self, outputs: Outputs, current: Response) -> str:
        queries = list(self.service("athena").items("list_named_queries", "NamedQueryIds", WorkGroup=current["Name"]))
        return "has saved queries, which would be deleted with it" if queries else ""

    def delete(self, outputs: Outputs, current: Response) -> None:
        try:
            self.service("athena").call("delete_work_group", WorkGroup=self.names.workgroup, RecursiveDeleteOption=True)
        except AwsError as error:
            if not _is_absent(error):
                raise
        self.wait_until_gone(self.label, self._get)

    def _get(self) -> Response | None:
        try:
            response: Response = self.service("athena").call("get_work_group", WorkGroup=self.names.workgroup)
            workgroup: Response = response["WorkGroup"]
            return workgroup
        except AwsError as error:
            if _is_absent(error):
                return None
            raise

    @property
    def _results(self) -> Response:
        return {
            "OutputLocation": results(self.names),
            "EncryptionConfiguration": {"EncryptionOption": "SSE_KMS", "KmsKey": self.kms_key}
            if self.kms_key
            else {"EncryptionOption": "SSE_S3"},
        }


def _is_absent(error: AwsError) -> bool:
    # Athena has no error code of its own for this.
    return error.code == "InvalidRequestException" and "not found" in str(error)
