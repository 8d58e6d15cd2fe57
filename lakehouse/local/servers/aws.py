"""AWS: S3Proxy, which is S3 on the local disk, and moto, which has all other services in memory (Glue, IAM, STS …)."""

import contextlib
import json
import sys
from typing import Any, Literal

import boto3
from botocore.config import Config

from lakehouse.local import guard, jars
from lakehouse.local.client_environment import ACCOUNT, BUCKET, SNOWFLAKE_ROLE
from lakehouse.local.home import write_atomically
from lakehouse.local.java import java, property_value
from lakehouse.local.processes.description import Context, Server, responds


def moto(context: Context) -> Server:
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
        ready=lambda: responds(f"{url}/moto-api/"),
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


def s3proxy(context: Context) -> Server:
    """Describe the object store. Its setup creates the bucket."""
    folder = context.home.folder("s3")
    url = context.url("s3")
    objects = context.home.folder("s3/objects")
    configuration = folder / "s3proxy.conf"

    def prepare() -> None:
        settings = {
            "s3proxy.endpoint": url,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": context.credentials.aws_access_key_id,
            "s3proxy.credential": context.credentials.aws_secret_access_key,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": property_value(objects),
        }
        write_atomically(configuration, "".join(f"{name}={value}\n" for name, value in settings.items()))

    def provision(env: object) -> None:
        s3 = client(context, "s3", url)
        if BUCKET not in {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}:
            s3.create_bucket(Bucket=BUCKET)

    (jar,) = jars.paths("s3")
    return Server(
        name="s3",
        command=java(
            "-XX:TieredStopAtLevel=1", "-jar", str(jar), "--properties", str(configuration), heap="384m", archive="s3"
        ),
        folder=folder,
        address=url,
        ready=lambda: responds(url),
        env={},
        ports={"s3": context.ports["s3"]},
        prepare=prepare,
        provision=provision,
    )
