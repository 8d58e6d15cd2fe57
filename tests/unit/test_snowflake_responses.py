"""Successful responses of Snowflake whose rows or JSON have another form than Snowflake documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from snowflake.connector.errors import OperationalError, ProgrammingError

from lakehouse.config.deployment import Deployment
from lakehouse.config.model import Config
from lakehouse.core.errors import ConfigError, LakehouseError, OutcomeUnknownError
from lakehouse.deploy.cloud_doctor import examine
from lakehouse.deploy.credentials import CloudCredentials
from lakehouse.deploy.names import Names
from lakehouse.deploy.resource import Outputs, Resource
from lakehouse.deploy.snowflake.administrator import Administrator
from lakehouse.deploy.snowflake.key_pair_rotation import ServiceUser
from lakehouse.deploy.snowflake.objects import CONTENTS, AccountObject
from lakehouse.deploy.snowflake.snowflake_resources import snowflake_resources
from resources.aws.secrets_manager import Secrets
from resources.iceberg.rest_catalog import RestCatalog
from resources.snowflake.snowflake import Snowflake
from resources.snowflake.sql import KeySlot

VALUE = "hunter2"
NAMES = Names("lake", "123456789012", "us-east-1")
Answer = tuple[Sequence[str], Sequence[tuple[Any, ...]]]


@dataclass
class ScriptedSession:
    """A session whose statements have the answers of their beginnings: the names of columns, and rows."""

    answers: dict[str, Answer | Exception]
    account: str = "ORG-ACCOUNT"
    executed: list[str] = field(default_factory=list)

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        cursor = SimpleNamespace(description=[], rows=[])

        def execute(statement: str, parameters: object = None) -> None:
            self.executed.append(statement)
            response = next(response for begin, response in self.answers.items() if statement.startswith(begin))
            if isinstance(response, Exception):
                raise response
            columns, cursor.rows = response
            cursor.description = [SimpleNamespace(name=column) for column in columns]

        cursor.execute, cursor.fetchall = execute, lambda: cursor.rows
        yield cursor


def described(**properties: Any) -> Answer:
    """Return what DESC shows, in the columns of users and of other objects."""
    rows = [(name, "String", value, value) for name, value in properties.items()]
    return ("property", "property_type", "property_value", "value"), rows


def comment() -> str:
    return Administrator(ScriptedSession({}), NAMES.owner).comment


def shown(*names: str) -> Answer:
    return ("name", "comment"), [(NAMES.snowflake(name), comment()) for name in names]


def resource(session: ScriptedSession, address: str) -> Resource[Any]:
    config = Config.model_validate({"namespace": "trading", "topics": {}, "environments": {}})
    rest = RestCatalog(uri="http://127.0.0.1:1", warehouse="lake", client_id="reader", client_secret=VALUE)
    role = AccountObject("aws/role", Administrator(session, ""), kind="ROLE", identifier=("R",), creation="")
    resources = snowflake_resources(session, Secrets("us-east-1"), NAMES, config, role, rest_catalog=lambda: rest)
    [match] = [resource for resource in resources if resource.address == address]
    return match


SHOW = {"snowflake/user": "SHOW USERS", "snowflake/schema": "SHOW SCHEMAS", "snowflake/volume": "SHOW EXTERNAL VOLUMES"}
NO_TABLE: list[Answer] = [(("status",), [(VALUE,)]), (("name",), [(7,)]), (("name", "owner"), [("X", VALUE)])]
DESCRIBED: dict[str, tuple[dict[str, Answer], str]] = {
    "snowflake/volume": ({"SHOW": shown("VOLUME")}, "DESC EXTERNAL VOLUME"),
    "snowflake/integration": ({"SHOW": shown("GLUE")}, "DESC CATALOG INTEGRATION"),
    "snowflake/rest_integration": ({"SHOW": shown("REST")}, "DESC CATALOG INTEGRATION"),
}
LOCATIONS = ["", VALUE, "[]", "null", json.dumps({"STORAGE_AWS_IAM_USER_ARN": VALUE}), None, 7]
VERIFIED = ["", VALUE, "7", "[]", "{}", '{"success": "false"}', '{"success": null}', None, True]


def refused(session: ScriptedSession, call: Callable[[], object], statement: str) -> str:
    """Return the message of an error that names the statement, and no value."""
    with pytest.raises(LakehouseError) as error:
        call()
    message = str(error.value)
    assert "Snowflake at" in message and f"to: {statement}" in message and "The query changed nothing" in message
    assert VALUE not in message and not [sql for sql in session.executed if sql.startswith(("CREATE", "ALTER"))]
    return message


def read(session: ScriptedSession, address: str) -> Callable[[], object]:
    return lambda: resource(session, address).read(Outputs())


@pytest.mark.parametrize("address", SHOW)
@pytest.mark.parametrize("response", NO_TABLE[:2])
def test_list_of_objects_without_their_names_is_refused(address: str, response: Answer):
    session = ScriptedSession({"SHOW": response})
    refused(session, read(session, address), SHOW[address])


def test_list_of_objects_without_comments_is_refused():
    """The owner of an object cannot be known."""
    session = ScriptedSession({"SHOW": (("name", "owner"), [(NAMES.snowflake("USER"), VALUE)])})
    assert "has no comment, but name, owner" in refused(session, read(session, "snowflake/user"), "SHOW USERS")


@pytest.mark.parametrize("address", DESCRIBED)
@pytest.mark.parametrize("response", NO_TABLE)
def test_description_without_properties_is_refused(address: str, response: Answer):
    answers, statement = DESCRIBED[address]
    session = ScriptedSession({**answers, "DESC": response})
    assert "has no property" in refused(session, read(session, address), statement)


@pytest.mark.parametrize("location", LOCATIONS)
def test_volume_with_unknown_location_is_refused(location: Any):
    session = ScriptedSession({"SHOW": shown("VOLUME"), "DESC": described(STORAGE_LOCATION_1=location)})
    refused(session, read(session, "snowflake/volume"), "DESC EXTERNAL VOLUME")


def test_integration_without_principal_is_refused():
    session = ScriptedSession({"SHOW": shown("GLUE"), "DESC": described(API_AWS_EXTERNAL_ID=VALUE, ENABLED="true")})
    message = refused(session, read(session, "snowflake/integration"), "DESC CATALOG INTEGRATION")
    assert "has no API_AWS_IAM_USER_ARN, but API_AWS_EXTERNAL_ID, ENABLED" in message


@pytest.mark.parametrize("address", ["snowflake/volume_verified", "snowflake/integration_verified"])
@pytest.mark.parametrize("response", VERIFIED)
def test_unknown_verification_is_refused(address: str, response: Any):
    session = ScriptedSession({"SELECT SYSTEM$": (("SYSTEM$VERIFY",), [(response,)])})
    refused(session, read(session, address), "SELECT SYSTEM$VERIFY")


@pytest.mark.parametrize(("columns", "rows"), [((), []), (("a",), []), (("a", "b"), [("{}", "{}")])])
def test_verification_of_other_size_is_refused(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]):
    session = ScriptedSession({"SELECT": (columns, rows)})
    refused(session, read(session, "snowflake/volume_verified"), "SELECT SYSTEM$VERIFY")


@pytest.mark.parametrize("begin", ["SHOW GRANTS TO", "SHOW FUTURE", "SHOW GRANTS OF"])
def test_unknown_grants_are_refused(begin: str):
    session = ScriptedSession({begin: (("status",), [(VALUE,)]), "SHOW": ((), [])})
    refused(session, read(session, "snowflake/grants"), begin)


def test_unknown_tables_are_refused():
    session = ScriptedSession({"SHOW ICEBERG TABLES": (("name", "schema_name"), [("T", VALUE)])})
    refused(session, read(session, "snowflake/tables"), "SHOW ICEBERG TABLES")


@pytest.mark.parametrize("kind", ["OBJECTS", "STAGES", "USER PROCEDURES"])
def test_unknown_contents_of_schema_are_refused(kind: str):
    """A schema whose contents are unknown is not dropped."""
    session = ScriptedSession({f"SHOW {kind}": (("name",), [("T",)]), "SHOW": ((), [])})
    refused(session, lambda: resource(session, "snowflake/schema").retained(Outputs(), {}), f"SHOW {kind}")


@pytest.mark.parametrize("kind", CONTENTS)
def test_database_and_schema_with_an_object_of_others_are_kept(kind: str):
    """DROP DATABASE and DROP SCHEMA would drop it, too."""
    rows = [("INFORMATION_SCHEMA", "V"), ("TRADING", "THEIRS")]
    session = ScriptedSession({f"SHOW {kind} IN DATABASE": (("schema_name", "name"), rows), "SHOW": ((), [])})
    for address in ("snowflake/database", "snowflake/schema"):
        reason = resource(session, address).retained(Outputs(), {})
        assert reason == "holds what the deployment did not make: TRADING.THEIRS"
    assert resource(session, "snowflake/rest_schema").retained(Outputs(), {}) == ""


def test_database_with_a_schema_of_others_is_kept():
    schemas = [("PUBLIC", ""), ("INFORMATION_SCHEMA", None), ("TRADING", comment())]
    for foreign, reason in (([], ""), ([("THEIRS", None)], "holds what the deployment did not make: schema THEIRS")):
        session = ScriptedSession({"SHOW SCHEMAS": (("name", "comment"), schemas + foreign), "SHOW": ((), [])})
        assert resource(session, "snowflake/database").retained(Outputs(), {}) == reason


def service_user(session: ScriptedSession) -> ServiceUser:
    return ServiceUser("ORG-ACCOUNT", "U", "R", "/secret", Secrets("us-east-1"), session)


@pytest.mark.parametrize(
    "response",
    [
        *NO_TABLE,
        described(NAME="U", TYPE="SERVICE"),
        described(RSA_PUBLIC_KEY_FP="null"),
        described(RSA_PUBLIC_KEY_FP="null", RSA_PUBLIC_KEY_2_FP=VALUE),
        described(RSA_PUBLIC_KEY_FP=None, RSA_PUBLIC_KEY_2_FP="null"),
    ],
)
def test_slot_that_snowflake_does_not_show_is_not_empty(response: Answer):
    """The first key would be written over a key in use."""
    session = ScriptedSession({"DESC USER": response, "ALTER": (("status",), [("done",)])})
    refused(session, lambda: service_user(session).installed(), "DESC USER")


class Credentials(CloudCredentials):
    """Credentials with a scripted session, and none for AWS."""

    response: ClassVar[Answer | Exception]

    @property
    def session(self) -> Any:
        raise ConfigError("there is no profile")

    @property
    def snowflake(self) -> Any:
        return ScriptedSession({"SELECT": self.response})


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        ((("CURRENT_USER()",), [(None,)]), "has NoneType instead of one str, to: SELECT CURRENT_USER()"),
        (OperationalError(msg="no response", errno=250003), "Snowflake does not answer at ORG-ACCOUNT"),
        (ProgrammingError(msg="no warehouse", errno=606), "refused a statement of the administrator's session"),
    ],
)
def test_doctor_reports_query_that_fails(response: Any, problem: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Credentials, "response", response, raising=False)
    credentials = Credentials(Deployment(name="lake", account="123456789012"))
    *_, snowflake = examine(credentials, Config.model_validate({"namespace": "n", "topics": {}, "environments": {}}))
    assert not snowflake.ok and problem in snowflake.observation


class Account(Snowflake):
    """An account whose session is scripted."""

    _script: Any = None

    @contextmanager
    def connect(self):
        yield self._script


def account(session: ScriptedSession) -> Account:
    settings = ("account", "user", "private_key_path", "role", "warehouse", "database", "aws_role_arn", "region")
    scripted = Account(**dict.fromkeys(settings, "X"), glue_catalog_id="1", host="127.0.0.1")
    scripted._script = session
    return scripted


@pytest.mark.parametrize("information", ["", VALUE, "[]", "{}", '{"metadataLocation": null}', None, 7])
def test_table_without_metadata_location_is_refused(information: Any):
    session = ScriptedSession({"SELECT": (("SYSTEM$GET",), [(information,)])})
    statement = "SELECT SYSTEM$GET_ICEBERG_TABLE_INFORMATION"
    refused(session, lambda: account(session).metadata_location("S", "T"), statement)
    refused(session, lambda: account(session).table_state("S", "T"), statement)


@pytest.mark.parametrize("rows", [[], [(None,)], [(VALUE,)], [(1,), (2,)]])
def test_unknown_number_of_rows_is_refused(rows: Any):
    location = json.dumps({"metadataLocation": "s3://b/m.json"})
    session = ScriptedSession({"SELECT SYSTEM$": (("a",), [(location,)]), "SELECT COUNT": (("b",), rows)})
    refused(session, lambda: account(session).table_state("S", "T"), "SELECT COUNT(*)")


def test_unknown_list_is_refused_before_an_object_is_created():
    session = ScriptedSession({"SHOW": (("status",), [(VALUE,)])})
    refused(session, lambda: account(session).ensure_account_objects("s3://b/"), "SHOW EXTERNAL VOLUMES")


def test_lost_response_to_a_new_key_has_unknown_outcome():
    empty = described(RSA_PUBLIC_KEY_FP="null", RSA_PUBLIC_KEY_2_FP="null")
    lost = OperationalError(msg="no response", errno=250003)
    user = service_user(ScriptedSession({"DESC USER": empty, "ALTER USER": lost}))
    stored = SimpleNamespace(value=user.new_key(KeySlot.FIRST).written(user.secret), version_id="1")
    secrets: Any = SimpleNamespace(create=lambda *_, **__: None, read=lambda *_: stored)
    with pytest.raises(OutcomeUnknownError, match="may have been changed or not: ALTER USER"):
        replace(user, secrets=secrets).install()
