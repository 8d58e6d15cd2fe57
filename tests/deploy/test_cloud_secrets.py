"""Secrets and their version labels on moto, and key pairs in secrets."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import boto3
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from moto import mock_aws

from lakehouse.config.deployment import DEPLOYMENT_TAG
from lakehouse.core.errors import CommitConflict, LakehouseError, OutcomeUnknownError, UnclearState, Unreachable
from lakehouse.deploy.confluent.account_key import JoinedLayout
from lakehouse.deploy.snowflake.key_pair import KeyPair
from resources.aws.secrets_manager import PENDING, PREVIOUS, SecretJson, Secrets, Version
from resources.snowflake.session import private_key
from resources.snowflake.sql import KeySlot
from tests.support.clouds.aws.world import REGION, World
from tests.support.servers.proxy import Request, Response

NAME = "/lakehouse/test"
ONE, TWO, THREE = (SecretJson({"key": f"hidden {number}"}) for number in (1, 2, 3))


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Secrets]:
    for variable in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SECRETS_MANAGER", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    with mock_aws():
        yield Secrets("eu-west-1", "test")


def plain() -> Any:
    return boto3.client("secretsmanager", region_name="eu-west-1")


def test_read_missing_secret_is_none(secrets: Secrets):
    assert secrets.read(NAME) is None
    secrets.create(NAME, ONE, description="")
    assert secrets.read(NAME, PENDING) is None


def test_create_existing_secret_is_not_replaced(secrets: Secrets):
    secrets.create(NAME, ONE, description="first")
    secrets.create(NAME, TWO, description="second")
    assert secrets.read(NAME).value == ONE
    described = plain().describe_secret(SecretId=NAME)
    assert (described["Description"], described["Tags"]) == ("first", [{"Key": DEPLOYMENT_TAG, "Value": "test"}])


def test_put_pending_is_not_current_before_promotion(secrets: Secrets):
    secrets.create(NAME, ONE, description="")
    current = secrets.read(NAME)
    pending = secrets.put_pending(NAME, TWO)
    assert secrets.read(NAME) == current
    assert secrets.read(NAME, PENDING).value == TWO
    secrets.promote(NAME, pending, over=current)
    assert (secrets.read(NAME).value, secrets.read(NAME, PREVIOUS).value) == (TWO, ONE)
    secrets.promote(NAME, pending, over=current)
    assert secrets.read(NAME).value == TWO, "as when the response was lost and the call repeated"


def test_put_pending_replaces_older_pending_version(secrets: Secrets):
    secrets.create(NAME, ONE, description="")
    secrets.put_pending(NAME, TWO)
    secrets.put_pending(NAME, THREE)
    assert secrets.read(NAME, PENDING).value == THREE


def test_promote_concurrently_raises_conflict(secrets: Secrets):
    secrets.create(NAME, ONE, description="")
    current = secrets.read(NAME)
    mine, others = secrets.put_pending(NAME, TWO), secrets.put_pending(NAME, THREE)
    secrets.promote(NAME, others, over=current)
    with pytest.raises(CommitConflict, match="changed the secret '/lakehouse/test'"):
        secrets.promote(NAME, mine, over=current)
    assert secrets.read(NAME).value == THREE


def test_claim_pending_after_another_raises_conflict(secrets: Secrets):
    secrets.create(NAME, ONE, description="")
    first = secrets.claim_pending(NAME, TWO, over=secrets.read(NAME, PENDING))
    secrets.claim_pending(NAME, THREE, over=first)
    with pytest.raises(CommitConflict, match="label AWSPENDING now was left unchanged"):
        secrets.claim_pending(NAME, TWO, over=first)
    assert secrets.read(NAME, PENDING).value == THREE
    assert secrets.read(NAME).value == ONE


@pytest.mark.parametrize("text", ["hidden", '["hidden"]', '{"key": {"hidden": 1}}', ""])
def test_read_secret_of_other_layout_is_refused(secrets: Secrets, text: str):
    plain().create_secret(Name=NAME, SecretString=text or " ")
    with pytest.raises(UnclearState, match="not a JSON object of texts. It was left unchanged") as refused:
        secrets.read(NAME)
    assert "hidden" not in str(refused.value)


def test_read_deleted_secret_is_none_and_restorable(secrets: Secrets):
    secrets.create(NAME, ONE, description="")
    secrets.delete(NAME)
    secrets.delete(NAME)
    assert (secrets.read(NAME), secrets.read(NAME, PENDING)) == (None, None)
    window = plain().describe_secret(SecretId=NAME)["DeletedDate"] - datetime.now(UTC)
    assert timedelta(days=6) < window < timedelta(days=8)
    plain().restore_secret(SecretId=NAME)
    assert secrets.read(NAME).value == ONE


def test_create_after_deletion_reuses_the_name(secrets: Secrets):
    secrets.create(NAME, ONE, description="")
    secrets.delete(NAME)
    secrets.create(NAME, TWO, description="")
    assert (secrets.read(NAME).value, secrets.read(NAME, PREVIOUS).value) == (TWO, ONE)


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("CreateSecret", TWO),
        ("DescribeSecret", TWO),
        ("RestoreSecret", TWO),
        # The secret is restored already, so the other command leaves it unchanged.
        ("PutSecretValue", THREE),
        ("UpdateSecretVersionStage", THREE),
    ],
)
def test_create_deleted_secret_concurrently_keeps_the_first_value(
    aws: World, monkeypatch: pytest.MonkeyPatch, call: str, value: SecretJson
):
    second = Secrets(REGION, "test")
    second.create(NAME, ONE, description="")
    second.delete(NAME)
    with monkeypatch.context() as direct:
        direct.setenv("AWS_ENDPOINT_URL", aws.strict.address)
        first = Secrets(REGION, "test")
        assert first.read(NAME) is None
    calls = []

    def create_first(request: Request) -> Response | None:
        if request.target.endswith(call) and not calls:
            calls.append(call)
            first.create(NAME, TWO, description="")
        return guard(request)

    guard = aws.guard
    monkeypatch.setattr(aws, "guard", create_first)
    second.create(NAME, THREE, description="")
    assert calls == [call]
    assert (first.read(NAME).value, first.read(NAME, PREVIOUS).value) == (value, ONE)


@pytest.mark.parametrize(
    "tags", [[], [{"Key": DEPLOYMENT_TAG, "Value": "another"}]], ids=["untagged", "of another deployment"]
)
def test_create_deleted_foreign_secret_is_refused(secrets: Secrets, tags: list[dict[str, str]]):
    plain().create_secret(Name=NAME, SecretString=json.dumps(ONE.reveal()), Tags=tags)
    plain().delete_secret(SecretId=NAME)
    with pytest.raises(UnclearState, match="not belong to deployment 'test'.*left unchanged"):
        secrets.create(NAME, TWO, description="")
    assert "DeletedDate" in plain().describe_secret(SecretId=NAME)


def test_delete_missing_secret_succeeds(secrets: Secrets):
    secrets.delete(NAME)
    assert secrets.read(NAME) is None


def test_read_unreachable_service_raises(monkeypatch: pytest.MonkeyPatch):
    for variable, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "hidden",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(Unreachable, match="AWS Secrets Manager does not answer at region eu-west-1"):
        Secrets("eu-west-1", "test").put_pending(NAME, ONE)


class Silent(BaseHTTPRequestHandler):
    """A server that executes requests, and does not answer or answers that it failed."""

    status: ClassVar = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.status:
            self.send_response(self.status)
            self.send_header("Content-Length", "0")
            self.end_headers()
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


VERSION = Version("1" * 32, frozenset(), ONE)
READ_CALLS: list[Callable[[Secrets], object]] = [
    lambda secrets: secrets.read(NAME),
    lambda secrets: secrets.versions(NAME),
    lambda secrets: secrets.changed_at(NAME),
]
CHANGES: list[Callable[[Secrets], object]] = [
    lambda secrets: secrets.create(NAME, ONE, description=""),
    lambda secrets: secrets.put_pending(NAME, ONE),
    lambda secrets: secrets.claim_pending(NAME, ONE, over=None),
    lambda secrets: secrets.promote(NAME, VERSION, over=VERSION),
    lambda secrets: secrets.delete(NAME),
]


@contextmanager
def secrets_of(handler: type[BaseHTTPRequestHandler], monkeypatch: pytest.MonkeyPatch) -> Iterator[Secrets]:
    """Run a server in place of AWS, and yield its client."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for variable, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "hidden",
            "AWS_MAX_ATTEMPTS": "1",
        }.items():
            monkeypatch.setenv(variable, value)
        try:
            yield Secrets("eu-west-1", "test")
        finally:
            server.shutdown()


@pytest.mark.parametrize("status", [0, 500])
def test_change_with_lost_response_has_unknown_outcome(monkeypatch: pytest.MonkeyPatch, status: int):
    monkeypatch.setattr(Silent, "status", status)
    with secrets_of(Silent, monkeypatch) as secrets:
        for change in CHANGES:
            with pytest.raises(OutcomeUnknownError, match=f"'{NAME}' may have been changed or not.*Run the"):
                change(secrets)
        with pytest.raises(Unreachable, match="The call did not complete"):
            secrets.read(NAME)


class Garbled(BaseHTTPRequestHandler):
    """A server that answers every request with status 200 and one text."""

    text: ClassVar = ""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.text)))
        self.end_headers()
        self.wfile.write(self.text.encode())

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


UNUSABLE_TEXTS = [
    "",
    "<html>hidden</html>",
    '"hidden"',
    '["hidden"]',
    "{}",
    '{"Name": "hidden"',
    '{"Name": 7, "VersionId": null}',
    '{"VersionId": 7, "CreatedDate": "hidden", "VersionStages": "hidden", "Versions": ["hidden"]}',
]


@pytest.mark.parametrize("text", UNUSABLE_TEXTS)
def test_success_with_unusable_response_is_reported_without_it(monkeypatch: pytest.MonkeyPatch, text: str):
    monkeypatch.setattr(Garbled, "text", text)
    with secrets_of(Garbled, monkeypatch) as secrets:
        for call in READ_CALLS:
            with pytest.raises(LakehouseError, match=f"an unusable response about '{NAME}'.* changed nothing") as error:
                call(secrets)
            assert "hidden" not in "".join(traceback.format_exception(error.value))
        for call in CHANGES:
            with pytest.raises(OutcomeUnknownError, match=f"'{NAME}' may have been changed or not") as unknown:
                call(secrets)
            assert "hidden" not in "".join(traceback.format_exception(unknown.value))


@pytest.mark.parametrize("text", ["hidden", "[" * 60_000, '["hidden"]', '{"key": {"hidden": 1}}'])
def test_read_value_of_another_layout_names_secret_without_value(secrets: Secrets, text: str):
    plain().create_secret(Name=NAME, SecretString=text)
    with pytest.raises(
        UnclearState, match=f"'{NAME}' .* is not a JSON object of texts. It was left unchanged"
    ) as error:
        secrets.read(NAME)
    assert "hidden" not in "".join(traceback.format_exception(error.value))


def test_repr_of_secret_hides_values(secrets: Secrets):
    secrets.create(NAME, ONE, description="")
    for shown in (ONE, secrets.read(NAME), {"in": [ONE]}):
        assert "hidden" not in f"{shown} {shown!r}"


def test_key_pair_secret_round_trip():
    pair = KeyPair.generate(account="A", user="U", role="R", slot=KeySlot.SECOND)
    written = pair.written(NAME)
    again = KeyPair.read(written)
    assert (again.account, again.user, again.role, again.slot, again.created_at) == (
        ("A", "U", "R", KeySlot.SECOND, pair.created_at)
    )
    assert again.fingerprint == pair.fingerprint
    assert again.private_key.private_numbers() == pair.private_key.private_numbers()
    assert "PRIVATE" not in f"{pair!r} {written!r}"


@pytest.mark.parametrize(
    "change",
    [
        {"private_key": "hidden"},
        {"slot": "RSA_PUBLIC_KEY_3"},
        {"created_at": "hidden"},
        {"created_at": "2026-01-01T00:00:00"},
        {"role": None},
    ],
    ids=str,
)
def test_key_pair_invalid_secret_is_refused(change: dict[str, str | None]):
    values = KeyPair.generate(account="A", user="U", role="R", slot=KeySlot.FIRST).written(NAME).reveal() | change
    values = {name: value for name, value in values.items() if value is not None}
    with pytest.raises(ValueError, match="not account, user, role") as refused:
        KeyPair.read(SecretJson(json.loads(json.dumps(values))))
    assert "hidden" not in str(refused.value)


def test_versions_include_those_without_label(secrets: Secrets):
    secrets.create(NAME, ONE, description="")
    for value in (TWO, THREE):
        secrets.promote(NAME, secrets.put_pending(NAME, value), over=secrets.read(NAME))
    versions = secrets.versions(NAME)
    assert sorted(str(version.value.reveal()) for version in versions) == [str(v.reveal()) for v in (ONE, TWO, THREE)]
    assert all(version.created_at for version in versions)


def test_key_pair_secret_has_kickstarter_fields():
    pair = KeyPair.generate(account="ORG-ACCOUNT", user="U", role="R", slot=KeySlot.SECOND)
    secret = pair.written("/snowflake_resource/prod").reveal()
    assert secret["snowflake_account_identifier"] == "ORG-ACCOUNT" and secret["snowflake_service_user"] == "U"
    assert secret["secrets_path"] == "/snowflake_resource/prod"
    for slot in (1, 2):
        key = private_key(secret[f"snowflake_rsa_private_key_{slot}_pem"].encode())
        assert isinstance(key, RSAPrivateKey) and key.private_numbers() == pair.private_key.private_numbers()
        assert secret[f"snowflake_rsa_public_key_{slot}_pem"] == pair.public_key
        assert "".join(secret[f"rsa_public_key_{slot}_pem"].splitlines()[1:-1]) == pair.public_key


@pytest.mark.parametrize("values", [{}, {"info": ""}, {"info": "hidden"}, {"info": "hidden:"}, {"info": ":hidden"}])
def test_read_joined_key_without_id_or_secret_is_missing_field(values: dict[str, str]):
    with pytest.raises(KeyError, match="info") as error:
        JoinedLayout("info", "info", {}).read(SecretJson(values))
    assert "hidden" not in str(error.value)
