"""Sessions of AWS clients, with the credentials of the environment or of an IAM role that they may assume."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import boto3
    from botocore.loaders import JSONFileLoader
    from botocore.session import Session

SESSION_NAME = "lakehouse"
"""Name of the sessions of assumed roles, as CloudTrail shows it."""
TIMEOUT_SECONDS = 10


def botocore_session(role_arn: str | None, region: str | None) -> Session:
    """Return a session whose credentials are renewed before they expire.
    The role is assumed when a client of the session first connects.

    Args:
        role_arn: The role to assume; if empty, the default credentials of AWS clients apply.
        region: The region of the session and of STS.
    """
    from botocore.config import Config
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
    from botocore.exceptions import NoCredentialsError

    session = _session()
    if region:
        session.set_config_variable("region", region)
    if role_arn:
        source = _session()
        config = Config(connect_timeout=TIMEOUT_SECONDS, read_timeout=TIMEOUT_SECONDS, retries={"mode": "standard"})

        def create_client(service: str, **arguments: object) -> object:
            return source.create_client(service, region_name=region, config=config, **arguments)

        def assume() -> dict[str, object]:
            credentials = source.get_credentials()
            if credentials is None:
                raise NoCredentialsError
            name = {"RoleSessionName": SESSION_NAME}
            return AssumeRoleCredentialFetcher(create_client, credentials, role_arn, name).fetch_credentials()

        # botocore has no public way to set credentials that it renews.
        session._credentials = DeferredRefreshableCredentials(assume, "assume-role")
    return session


def boto3_session(role_arn: str | None, region: str | None) -> boto3.Session:
    """Return the same as a session of boto3."""
    import boto3

    return boto3.Session(botocore_session=botocore_session(role_arn, region), region_name=region)


def _session() -> Session:
    from botocore.session import get_session

    session = get_session()
    session.get_component("data_loader").file_loader = _service_models()
    return session


@cache
def _service_models() -> JSONFileLoader:
    """Return the reader of files that all sessions share: parsing a service's model takes up to 0.1 s of CPU time."""
    from botocore.loaders import JSONFileLoader

    files = JSONFileLoader()
    files.load_file, files.exists = cache(files.load_file), cache(files.exists)
    return files
