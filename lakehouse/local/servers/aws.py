"""moto: all of AWS except S3 (Glue, IAM, STS, Secrets Manager), in memory."""

import contextlib
import json
import sys
from typing import Any, Literal

import boto3
from botocore.config import Config

from lakehouse.local.client_environment import ACCOUNT, SNOWFLAKE_ROLE
from lakehouse.local.http import guard
from lakehouse.local.processes import probe
from lakehouse.local.processes.process import Server
from lakehouse.local.processes.server_context import Context


def server(context: Context) -> Server:
    """Describe the server. Its setup creates the role that Snowflake assumes."""
    url = context.url("aws")

    def provision(env: object) -> None:
        iam = client(context, "iam", url)
        trust = {
            "Effect": "Allow",
            "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"},
            "Action": "sts:AssumeRole",
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        with contextlib.suppress(iam.exceptions.EntityAlreadyExistsException):  # by an earlier `up`
            iam.create_role(RoleName=SNOWFLAKE_ROLE, AssumeRolePolicyDocument=policy)

    return Server(
        name="aws",
        command=(sys.executable, "-m", "lakehouse.local.servers.aws_server", str(context.ports["aws"])),
        folder=context.home.folder("aws"),
        address=url,
        ready=lambda: probe.responds(f"{url}/moto-api/"),
        # moto would allow pages of every origin to read its responses.
        env={**guard.variables(), "MOTO_DISABLE_GLOBAL_CORS": "true"},
        ports={"aws": context.ports["aws"]},
        provision=provision,
    )


def client(context: Context, service: Literal["iam", "s3"], url: str) -> Any:
    """Return a client of a service at an address of the stack, with the stack's credentials."""
    return boto3.session.Session().client(
        service,
        endpoint_url=url,
        region_name=context.environment["AWS_REGION"],
        aws_access_key_id=context.credentials.aws_access_key_id,
        aws_secret_access_key=context.credentials.aws_secret_access_key,
        config=Config(s3={"addressing_style": "path"}, proxies={}),
    )
