"""IAM roles that clients of AWS assume."""

import os

import pytest

from lakehouse.core.errors import Unreachable
from lakehouse.core.tables.naming import TableRef
from resources.aws.athena import Athena
from resources.aws.glue import Glue
from resources.aws.secrets_manager import Secrets
from resources.iceberg.catalog import Catalog

ROLE = {"region": "us-east-1", "role_arn": "arn:aws:iam::123456789012:role/lakehouse"}

CALLS = {
    "catalog": lambda: Catalog(type="glue", warehouse="s3://lake/tables", **ROLE).load(TableRef("trading", "orders")),
    "glue": lambda: Glue(catalog_id="123456789012", **ROLE).registration("trading", "orders"),
    "athena": lambda: Athena(**ROLE).query("SELECT 1"),
    "secret": lambda: Secrets(**ROLE).read("lakehouse"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_role_without_credentials_to_assume_it_names_them(call, monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Unreachable, match="NoCredentialsError|Unable to locate credentials"):
        call()
