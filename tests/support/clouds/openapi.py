"""Validation of requests and responses by OpenAPI documents of vendors."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import yaml
from openapi_schema_validator import OAS30ReadValidator, OAS30WriteValidator, OAS31Validator, oas30_format_checker
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT4, DRAFT202012

FORM = "application/x-www-form-urlencoded"


class Pointer(str):
    """A JSON pointer (RFC 6901)."""

    def __truediv__(self, key: str | int) -> Pointer:
        return Pointer(f"{self}/{str(key).replace('~', '~0').replace('/', '~1')}")

    @property
    def keys(self) -> list[str]:
        """The keys from the root to the value."""
        return [key.replace("~1", "/").replace("~0", "~") for key in self.split("/")[1:]]


class Document:
    """One OpenAPI document with known deviations applied."""

    def __init__(self, text: str, exceptions: Iterable[Mapping[str, Any]] = ()):
        """Read a document.

        Args:
            text: The document in YAML.
            exceptions: Deviations as {at: pointers, remove: items, add: items}.
        """
        self.content = yaml.load(text, yaml.CSafeLoader)
        for exception in exceptions:
            for place in exception["at"]:
                self._except(Pointer(place), exception.get("remove", []), exception.get("add"))
        is_new = self.content["openapi"].startswith("3.1")
        self._validators = (OAS31Validator,) * 2 if is_new else (OAS30ReadValidator, OAS30WriteValidator)
        templates = {template: template.partition("?") for template in self.content["paths"]}
        self.patterns = {
            template: (re.compile(re.sub(r"\\{.*?\\}", "[^/]+", re.escape(path))), dict(parse_qsl(query)))
            for template, (path, _, query) in templates.items()
        }
        """The pattern of the path and the query parameters of each template."""
        self.registry = Registry().with_resource("urn:spec", Resource(self.content, DRAFT202012 if is_new else DRAFT4))

    def at(self, pointer: Pointer) -> Any:
        """Return the value at a pointer.

        Raises:
            KeyError: The document has no such value.
        """
        value = self.content
        for key in pointer.keys:
            value = value[int(key)] if isinstance(value, list) else value[key]
        return value

    def followed(self, pointer: Pointer) -> Pointer:
        """Return the pointer after following `$ref` references."""
        value = self.at(pointer)
        return self.followed(Pointer(value["$ref"][1:])) if isinstance(value, dict) and "$ref" in value else pointer

    def faults(self, pointer: Pointer, instance: Any, *, write: bool) -> list[str]:
        """Return the faults of an instance of a schema.

        Args:
            pointer: Place of the schema.
            instance: Value to validate.
            write: Whether the value is sent in a request, not in a response.
        """
        # Tests repeat most requests and responses.
        return list(self._faults(pointer, json.dumps(instance, sort_keys=True), write))

    @functools.lru_cache(maxsize=10_000)  # noqa: B019 (documents live as long as the process)
    def _faults(self, pointer: Pointer, text: str, write: bool) -> tuple[str, ...]:
        instance = json.loads(text)
        validator = self._validators[write]
        schema = {"$ref": f"urn:spec#{pointer}"}
        errors = validator(schema, registry=self.registry, format_checker=oas30_format_checker).iter_errors(instance)
        faults = [f"{'/'.join(map(str, error.absolute_path)) or 'body'}: {error.message[:300]}" for error in errors]
        return (*faults, *(self._unknown(pointer, instance, "body") if write else ()))

    def _unknown(self, pointer: Pointer, instance: Any, where: str) -> Iterator[str]:
        """Yield the undocumented fields, which schema validation would accept (such as misspelt names)."""
        if isinstance(instance, list):
            for n, item in enumerate(instance):
                yield from self._unknown(self.followed(pointer) / "items", item, f"{where}/{n}")
        if not isinstance(instance, dict):
            return
        known, is_open = self._properties(pointer)
        for name, value in instance.items():
            if name in known:
                yield from self._unknown(known[name], value, f"{where}/{name}")
            elif known and not is_open:
                yield f"{where}: '{name}' is not in the document, which has {', '.join(sorted(known))}"

    def _properties(self, pointer: Pointer) -> tuple[dict[str, Pointer], bool]:
        """Return the pointer of each property by name, and whether other properties are allowed."""
        pointer = self.followed(pointer)
        schema = self.at(pointer)
        known = {name: pointer / "properties" / name for name in schema.get("properties", {})}
        is_open = bool(schema.get("additionalProperties"))
        for kind in ("allOf", "oneOf", "anyOf"):
            for n in range(len(schema.get(kind, ()))):
                inner, inner_open = self._properties(pointer / kind / n)
                known, is_open = inner | known, is_open or inner_open
        return known, is_open

    def _except(self, at: Pointer, remove: list[Any], add: Any) -> None:
        """Remove items from, and add items to, the list or map at a pointer.

        A missing item to remove is an error: the overlay is out of date.
        """
        target = self.at(at)
        for key in remove:
            target.remove(key) if isinstance(target, list) else target.pop(key)
        if add:
            target.extend(add) if isinstance(target, list) else target.update(add)


@dataclass(frozen=True)
class Operation:
    """One operation of a document. `query` are the query parameters that are part of its path."""

    document: Document
    at: Pointer
    query: Mapping[str, str]

    @staticmethod
    def of(spec: Document, method: str, path: str, query: Mapping[str, str]) -> Operation | None:
        """Return the operation of a request, or None if the document does not have it."""
        best = None
        for template, (pattern, wanted) in spec.patterns.items():
            is_operation = method.lower() in spec.content["paths"][template] and pattern.fullmatch(path)
            if not is_operation or not wanted.items() <= query.items():
                continue
            # Prefer paths with a query, then paths with fewer parameters.
            rank = (len(wanted), -template.count("{"))
            if best is None or rank > best[0]:
                best = rank, Operation(spec, Pointer("") / "paths" / template / method.lower(), wanted)
        return best and best[1]

    def request_faults(self, query: Mapping[str, str], body: Any, media_type: str = "application/json") -> list[str]:
        """Return the faults of a request of this operation."""
        faults, parameters = [], self._parameters()
        for name, (pointer, required) in parameters.items():
            if required and name not in query:
                faults.append(f"query: '{name}' is required")
            elif name in query:
                value = self._typed(pointer, query[name])
                messages = self.document.faults(pointer / "schema", value, write=True)
                faults += [f"query '{name}': {fault}" for fault in messages]
        unknown = set(query) - set(parameters) - set(self.query)
        faults += [f"query: '{name}' is not in the document" for name in sorted(unknown)]
        if "requestBody" in self.document.at(self.at):
            content = self.document.followed(self.at / "requestBody") / "content"
            faults += self.document.faults(content / media_type / "schema", body, write=True)
        elif body is not None:
            faults.append("body: the operation takes none")
        return faults

    def response_faults(self, status: int, content_type: str, text: str) -> list[str]:
        """Return the faults of a response of this operation."""
        responses = self.document.at(self.at / "responses")
        listed = next((key for key in (str(status), f"{status // 100}XX", "default") if key in responses), None)
        if listed is None:
            return [f"status {status} is not in the document, which has {', '.join(responses)}"]
        response = self.document.followed(self.at / "responses" / listed)
        content = self.document.at(response).get("content", {})
        if not content:
            return [f"status {status} has no body in the document"] if text else []
        media_type = content_type.partition(";")[0]
        if media_type not in content:
            return [f"status {status}: '{media_type}' is not in the document, which has {', '.join(content)}"]
        try:
            instance = json.loads(text) if "json" in media_type else text
        except ValueError:
            return [f"status {status}: the body is not JSON"]
        return self.document.faults(response / "content" / media_type / "schema", instance, write=False)

    def _parameters(self) -> dict[str, tuple[Pointer, bool]]:
        parameters, path = {}, Pointer("") / "paths" / self.at.keys[1]
        for level in (path, self.at):
            for n in range(len(self.document.at(level).get("parameters", ()))):
                pointer = self.document.followed(level / "parameters" / n)
                parameter = self.document.at(pointer)
                if parameter["in"] == "query" and parameter["name"] not in self.query:
                    parameters[parameter["name"]] = pointer, parameter.get("required", False)
        return parameters

    def _typed(self, pointer: Pointer, value: str) -> Any:
        schema = self.document.at(self.document.followed(pointer / "schema"))
        if schema.get("type") == "integer" and value.isdigit():
            return int(value)
        if schema.get("type") == "array":
            return [value]
        if schema.get("type") == "boolean":
            return {"true": True, "false": False}.get(value, value)
        return value
