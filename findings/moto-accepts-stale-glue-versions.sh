#!/usr/bin/env bash
# moto's Glue accepts an update with a stale VersionId, so that a lost update stays invisible in tests.
#
# Versions: moto 5.2.5, boto3 1.44.8.
# Input:    two writers read a Glue table, and both call UpdateTable with the VersionId that they read.
# Seen:     both updates answer 200, and the second overwrites the first.
# Expected: the second fails: AWS Glue's API reference ("UpdateTable", VersionId and ConcurrentModificationException)
#           makes VersionId the version that the update is for. The condition that moto's S3 has for the same purpose
#           works: a put with a stale IfMatch is refused.
# Matters:  Iceberg's Glue catalogs commit by this condition, unless a lock is configured. A test of concurrent commits
#           passes on moto although the code that sends the condition is missing, and production loses snapshots.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  'moto[glue]==5.2.5' boto3==1.44.8
"$folder/venv/bin/python" -B -W ignore - "$folder" <<'PYTHON'
import sys

import boto3
from botocore.exceptions import ClientError
from moto import mock_aws

with mock_aws():
    glue, s3 = (boto3.client(service, region_name="us-east-1") for service in ("glue", "s3"))
    glue.create_database(DatabaseInput={"Name": "shop"})
    glue.create_table(DatabaseName="shop", TableInput={"Name": "orders", "Parameters": {"metadata": "0"}})
    version = glue.get_table(DatabaseName="shop", Name="orders")["Table"]["VersionId"]
    statuses = []
    for writer in ("first", "second"):
        table = {"Name": "orders", "Parameters": {"metadata": writer}}
        answer = glue.update_table(DatabaseName="shop", TableInput=table, VersionId=version)
        statuses.append(answer["ResponseMetadata"]["HTTPStatusCode"])
    left = glue.get_table(DatabaseName="shop", Name="orders")["Table"]["Parameters"]["metadata"]
    s3.create_bucket(Bucket="lake")
    tag = s3.put_object(Bucket="lake", Key="metadata", Body=b"0")["ETag"]
    s3.put_object(Bucket="lake", Key="metadata", Body=b"first", IfMatch=tag)
    try:
        s3.put_object(Bucket="lake", Key="metadata", Body=b"second", IfMatch=tag)
        refused = "accepted"
    except ClientError as error:
        refused = error.response["Error"]["Code"]
print(f"Glue: both updates with version {version}: {statuses}; the table has the metadata of the {left} writer")
print(f"S3: the second put with the same IfMatch: {refused}")
if (statuses, left, refused) != ([200, 200], "second", "PreconditionFailed"):
    sys.exit("The behaviour changed.")
PYTHON
