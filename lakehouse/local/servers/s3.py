"""S3Proxy: S3 on the local disk, with verified signatures."""

from lakehouse.local import jars
from lakehouse.local.client_environment import BUCKET
from lakehouse.local.home import write_atomically
from lakehouse.local.java import java, property_value
from lakehouse.local.processes import probe
from lakehouse.local.processes.process import Server
from lakehouse.local.processes.server_context import Context
from lakehouse.local.servers.aws import client


def server(context: Context) -> Server:
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
        ready=lambda: probe.responds(url),
        env={},
        ports={"s3": context.ports["s3"]},
        prepare=prepare,
        provision=provision,
    )
