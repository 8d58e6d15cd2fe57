"""The Athena workgroup of a deployment, whose query results are in its bucket."""

from dataclasses import dataclass

from lakehouse.deploy.aws.aws_resource import AwsResource
from lakehouse.deploy.aws.aws_service import AwsError, Response
from lakehouse.deploy.aws.table_locations import results
from lakehouse.deploy.resource import Outputs, Updatable
from resources.aws.secrets_manager import TAG


@dataclass(frozen=True, repr=False)
class Workgroup(AwsResource[Response], Updatable[Response]):
    """`aws/workgroup`, whose state is Athena's description."""

    address = "aws/workgroup"
    kms_key: str = ""
    """ARN of the key that encrypts results; empty for S3's own keys."""

    @property
    def label(self) -> str:
        """The workgroup with its name."""
        return f"Athena workgroup '{self.names.workgroup}'"

    def read(self, outputs: Outputs) -> Response | None:
        """Read the workgroup."""
        current = self._get()
        if current is None:
            return None
        arn = f"arn:aws:athena:{self.names.region}:{self.names.account}:workgroup/{self.names.workgroup}"
        command = f"aws athena tag-resource --resource-arn {arn} --tags Key={TAG},Value={self.names.deployment}"
        tags = self.service("athena").call("list_tags_for_resource", ResourceARN=arn)["Tags"]
        self.require_ownership(self.label, tags, command)
        return current

    def create(self, outputs: Outputs) -> Response:
        """Create the workgroup with its tag."""

        def create() -> None:
            configuration = {"ResultConfiguration": self._results, "EnforceWorkGroupConfiguration": True}
            self.service("athena").call(
                "create_work_group", Name=self.names.workgroup, Configuration=configuration, Tags=self.tags
            )

        return self.create_and_read(create, outputs)

    def diff(self, outputs: Outputs, current: Response) -> list[str]:
        """Compare where results go, their encryption, whether queries may override settings, and the state."""
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
        """Apply the settings, and enable it."""
        has = current.get("Configuration", {}).get("ResultConfiguration", {}).get("EncryptionConfiguration")
        encryption = {"EncryptionConfiguration": has} if has and not self.kms_key else {}
        updates = {"ResultConfigurationUpdates": self._results | encryption, "EnforceWorkGroupConfiguration": True}
        self.service("athena").call(
            "update_work_group", WorkGroup=self.names.workgroup, ConfigurationUpdates=updates, State="ENABLED"
        )
        return {**current, **self.read_existing(outputs)}

    def retained(self, outputs: Outputs, current: Response) -> str:
        """Report saved queries, which are deleted with it."""
        queries = list(self.service("athena").items("list_named_queries", "NamedQueryIds", WorkGroup=current["Name"]))
        return "has saved queries, which would be deleted with it" if queries else ""

    def delete(self, outputs: Outputs, current: Response) -> None:
        """Delete the workgroup with its history."""
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
