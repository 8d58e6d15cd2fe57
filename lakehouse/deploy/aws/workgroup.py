"""Athena's workgroup: queries of the deployment, with results in its bucket."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakehouse.deploy.aws.service import AwsError
from lakehouse.deploy.aws.step import EVERY_SECONDS, GONE_SECONDS, AwsStep
from lakehouse.deploy.aws.tables import results
from lakehouse.deploy.step import Found
from resources.confluent.waiting import wait_gone
from resources.secrets_manager import TAG


@dataclass(frozen=True)
class Workgroup(AwsStep):
    """`aws/workgroup`: what is found is as Athena answers it."""

    name = "aws/workgroup"

    @property
    def what(self) -> str:
        """The workgroup, named."""
        return f"Athena workgroup '{self.names.workgroup}'"

    def find(self, found: Found) -> dict[str, Any] | None:
        """The workgroup."""
        it = self._get()
        if it is None:
            return None
        arn = f"arn:aws:athena:{self.names.region}:{self.names.account}:workgroup/{self.names.workgroup}"
        tag = f"aws athena tag-resource --resource-arn {arn} --tags Key={TAG},Value={self.names.deployment}"
        self.claim(self.what, self.service("athena").call("list_tags_for_resource", ResourceARN=arn)["Tags"], tag)
        return it

    def create(self, found: Found) -> dict[str, Any]:
        """Make it, with its tag."""

        def make() -> None:
            configuration = {"ResultConfiguration": self._results, "EnforceWorkGroupConfiguration": True}
            self.service("athena").call(
                "create_work_group", Name=self.names.workgroup, Configuration=configuration, Tags=self.tags
            )

        return self.made(make, found)

    def differences(self, found: Found, it: dict[str, Any]) -> list[str]:
        """Results elsewhere or in the clear, settings that a query may override, or no queries at all."""
        configuration = it.get("Configuration", {})
        has = configuration.get("ResultConfiguration", {})
        wrong = {
            f"results go to '{has.get('OutputLocation', '')}'": has.get("OutputLocation") != results(self.names),
            "results are not encrypted with S3's own keys": has.get("EncryptionConfiguration")
            != self._results["EncryptionConfiguration"],
            "queries may choose settings of their own": not configuration.get("EnforceWorkGroupConfiguration"),
            "it is disabled": it.get("State") != "ENABLED",
        }
        return [phrase for phrase, is_wrong in wrong.items() if is_wrong]

    def change(self, found: Found, it: dict[str, Any]) -> dict[str, Any]:
        """Set it right."""
        updates = {"ResultConfigurationUpdates": self._results, "EnforceWorkGroupConfiguration": True}
        self.service("athena").call(
            "update_work_group", WorkGroup=self.names.workgroup, ConfigurationUpdates=updates, State="ENABLED"
        )
        return {**it, **(self.find(found) or {})}

    def delete(self, found: Found, it: dict[str, Any]) -> None:
        """Delete it with its history and named queries."""
        try:
            self.service("athena").call("delete_work_group", WorkGroup=self.names.workgroup, RecursiveDeleteOption=True)
        except AwsError as error:
            if not _is_absent(error):
                raise
        wait_gone(
            self.what,
            self._get,
            deadline_seconds=GONE_SECONDS,
            every_seconds=EVERY_SECONDS,
            clock=self.clock,
        )

    def _get(self) -> dict[str, Any] | None:
        try:
            return self.service("athena").call("get_work_group", WorkGroup=self.names.workgroup)["WorkGroup"]
        except AwsError as error:
            if _is_absent(error):
                return None
            raise

    @property
    def _results(self) -> dict[str, Any]:
        return {
            "OutputLocation": results(self.names),
            "EncryptionConfiguration": {"EncryptionOption": "SSE_S3"},
        }


def _is_absent(error: AwsError) -> bool:
    # Athena has no code of its own for it.
    return error.code == "InvalidRequestException" and "not found" in str(error)
