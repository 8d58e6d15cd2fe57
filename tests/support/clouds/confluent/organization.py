"""Handlers for environments, service accounts, role bindings and API keys."""

from __future__ import annotations

from werkzeug.routing import Rule
from werkzeug.wrappers import Request

from tests.support.clouds.confluent.state import ORGANIZATION, Problem, State, new_secret


def list_environments(state: State, request: Request):
    return state.listed(state.environments)


def create_environment(state: State, request: Request):
    environment_id = state.new_id("env")
    crn = f"{ORGANIZATION}/environment={environment_id}"
    document = request.json | {
        "api_version": "org/v2",
        "kind": "Environment",
        "id": environment_id,
        "metadata": state.metadata(f"/org/v2/environments/{environment_id}", crn),
    }
    return 201, state.add(state.environments, environment_id, document)


def get_environment(state: State, request: Request, thing_id: str):
    if thing_id not in state.environments:
        raise Problem(404, "Not Found", "resource_not_found")
    return 200, state.environments[thing_id]


def delete_environment(state: State, request: Request, thing_id: str):
    get_environment(state, request, thing_id)
    state.remove_environment(thing_id)
    return 204, None


def owns(state: State, request: Request, account_id: str) -> bool:
    """Return whether the caller may manage a service account and its keys: the administrator, or its ResourceOwner."""
    caller = request.environ.get("owner_id")
    crn = f"{ORGANIZATION}/service-account={account_id}"
    return caller is None or any(
        (binding["principal"], binding["role_name"], binding["crn_pattern"]) == (f"User:{caller}", "ResourceOwner", crn)
        for binding in state.bindings.values()
    )


def require_ownership(state: State, request: Request, account_id: str) -> None:
    """Check that the caller may manage a service account.

    Raises:
        Problem: The caller may not.
    """
    if not owns(state, request, account_id):
        raise Problem(403, "Forbidden Access", "forbidden_access")


def list_accounts(state: State, request: Request):
    name = request.args.get("display_name")
    return state.listed(
        state.accounts, lambda account: name in (None, account["display_name"]) and owns(state, request, account["id"])
    )


def create_account(state: State, request: Request):
    require_ownership(state, request, "*")
    if any(account["display_name"] == request.json["display_name"] for account in state.accounts.values()):
        raise Problem(409, "Service name is already in use", "conflict")
    account_id = state.new_id("sa")
    document = request.json | {
        "api_version": "iam/v2",
        "kind": "ServiceAccount",
        "id": account_id,
        "metadata": state.metadata(
            f"/iam/v2/service-accounts/{account_id}", f"{ORGANIZATION}/service-account={account_id}"
        ),
    }
    return 201, state.add(state.accounts, account_id, document)


def delete_account(state: State, request: Request, thing_id: str):
    if thing_id not in state.accounts:
        raise Problem(403, "Forbidden Access", "forbidden_access")
    require_ownership(state, request, thing_id)
    del state.accounts[thing_id]
    for key_id in [k for k, key in state.keys.items() if key["spec"]["owner"]["id"] == thing_id]:
        del state.keys[key_id], state.secrets[key_id]
    for binding_id in [k for k, binding in state.bindings.items() if binding["principal"] == f"User:{thing_id}"]:
        del state.bindings[binding_id]
    return 204, None


def list_bindings(state: State, request: Request):
    query = request.args
    return state.listed(
        state.bindings,
        lambda binding: (
            binding["crn_pattern"].startswith(query["crn_pattern"])
            and query.get("principal") in (None, binding["principal"])
            and query.get("role_name") in (None, binding["role_name"])
        ),
    )


def create_binding(state: State, request: Request):
    body = request.json
    if body["principal"].removeprefix("User:") not in state.accounts:
        raise Problem(400, "Principal not found", 40002, shape="errors")
    if any(body.items() <= binding.items() for binding in state.bindings.values()):
        raise Problem(409, "Role binding already exists", "conflict")
    binding_id = state.new_id("rb")
    document = body | {
        "api_version": "iam/v2",
        "kind": "RoleBinding",
        "id": binding_id,
        "metadata": state.metadata(f"/iam/v2/role-bindings/{binding_id}", f"{ORGANIZATION}/rolebinding={binding_id}"),
    }
    state.new_binding(document)
    return 201, document


def delete_binding(state: State, request: Request, thing_id: str):
    if thing_id not in state.bindings:
        detail = "Either unauthorized to access role binding or role binding does not exist"
        raise Problem(403, detail, 40301, shape="error_code")
    return 200, state.bindings.pop(thing_id)


def list_keys(state: State, request: Request):
    owner, resource = request.args.get("spec.owner"), request.args.get("spec.resource")
    return state.listed(
        state.keys,
        lambda key: (
            owner in (None, key["spec"]["owner"]["id"])
            and resource in (None, key["spec"]["resource"]["id"])
            and owns(state, request, key["spec"]["owner"]["id"])
        ),
    )


def create_key(state: State, request: Request):
    requested = request.json["spec"]
    owner = requested["owner"]["id"]
    if owner not in state.accounts:
        raise Problem(400, "Owner not found", "invalid_owner")
    require_ownership(state, request, owner)
    key_id = state.new_id("KEY")
    crn = f"{ORGANIZATION}/service-account={owner}"

    def reference(part: dict) -> dict:
        return part | {"related": f"{state.url}/{part['id']}", "resource_name": f"{crn}/{part['id']}"}

    # Without a resource it is a Cloud API key.
    resource = requested.get("resource", {"id": "cloud", "kind": "Cloud", "api_version": "iam/v2"})
    spec = requested | {"owner": reference(requested["owner"]), "resource": reference(resource)}
    if resource["id"].startswith("lsrc-"):
        # Confluent's response names this kind for a Schema Registry, whatever kind the request contained.
        spec["resource"] |= {"kind": "SchemaRegistry", "api_version": "srcm/v2"}
    document = {
        "api_version": "iam/v2",
        "kind": "ApiKey",
        "id": key_id,
        "metadata": state.metadata(f"/iam/v2/api-keys/{key_id}", f"{crn}/api-key={key_id}"),
        "spec": spec,
    }
    secret = new_secret()
    state.new_key(document, secret)
    return 202, document | {"spec": spec | {"secret": secret}}


def get_key(state: State, request: Request, thing_id: str):
    if thing_id not in state.keys:
        raise Problem(403, "Forbidden Access", "forbidden_access")
    require_ownership(state, request, state.keys[thing_id]["spec"]["owner"]["id"])
    return 200, state.keys[thing_id]


def delete_key(state: State, request: Request, thing_id: str):
    get_key(state, request, thing_id)
    del state.keys[thing_id], state.secrets[thing_id]
    return 204, None


RULES = [
    Rule("/org/v2/environments", methods=["GET"], endpoint=list_environments),
    Rule("/org/v2/environments", methods=["POST"], endpoint=create_environment),
    Rule("/org/v2/environments/<thing_id>", methods=["GET"], endpoint=get_environment),
    Rule("/org/v2/environments/<thing_id>", methods=["DELETE"], endpoint=delete_environment),
    Rule("/iam/v2/service-accounts", methods=["GET"], endpoint=list_accounts),
    Rule("/iam/v2/service-accounts", methods=["POST"], endpoint=create_account),
    Rule("/iam/v2/service-accounts/<thing_id>", methods=["DELETE"], endpoint=delete_account),
    Rule("/iam/v2/role-bindings", methods=["GET"], endpoint=list_bindings),
    Rule("/iam/v2/role-bindings", methods=["POST"], endpoint=create_binding),
    Rule("/iam/v2/role-bindings/<thing_id>", methods=["DELETE"], endpoint=delete_binding),
    Rule("/iam/v2/api-keys", methods=["GET"], endpoint=list_keys),
    Rule("/iam/v2/api-keys", methods=["POST"], endpoint=create_key),
    Rule("/iam/v2/api-keys/<thing_id>", methods=["GET"], endpoint=get_key),
    Rule("/iam/v2/api-keys/<thing_id>", methods=["DELETE"], endpoint=delete_key),
]
