"""Compiler of untrusted Protobuf sources from a schema registry.

Google's compiler runs in a separate process, so that a crash or an endless compilation ends only that process. No
untrusted file is ever on its import path, and it inherits no environment variables, so it has no credentials.
"""

import base64
import binascii
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from lakehouse.core.errors import SchemaError

MAX_SECONDS = 30
"""Timeout of the compiler. A schema of a million characters takes about a second."""
MAX_NAME_CHARACTERS = 200
"""Maximum characters of a reference's name. File systems allow 255 bytes per component of a path."""

ROOT = "lakehouse_root.proto"
"""File name of the schema among its imports."""

_NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*/)*[A-Za-z0-9_][A-Za-z0-9_.-]*\.proto")
_LOG_LINE = re.compile(r"WARNING: All log messages before|[IWEF]\d{4} \d\d:\d\d:\S+ ")
"""Lines that the compiler logs beside its errors (Abseil, logging)."""

# The new process sets its limits itself, because `preexec_fn` may deadlock in a process with threads. The memory limit
# covers the interpreter and the compiler; the output is at most a few times the input.
_PROGRAM = """\
import resource, runpy
for limit, value in ((resource.RLIMIT_CPU, 60), (resource.RLIMIT_AS, 2**31), (resource.RLIMIT_FSIZE, 2**26)):
    try:
        resource.setrlimit(limit, (value, value))
    except (OSError, ValueError):
        pass
runpy.run_module("grpc_tools.protoc", run_name="__main__", alter_sys=True)
"""


def compile_sources(root: str, references: Mapping[str, str]) -> FileDescriptorSet:
    """Return the descriptors of a Protobuf source and all its imports, with its own last.

    Args:
        references: The texts of files that it may import, by import name: sources, or descriptors as
            confluent-kafka's serializer registers them. Google's files (`google/protobuf`, `google/type` …) and
            Confluent's (`confluent/meta.proto` …) are always available.
    """
    require_plain_names([*references, ROOT])
    parsed = {name: descriptor(text, name) for name, text in references.items()}
    descriptors = {name: file for name, file in parsed.items() if file}
    files = {name: text for name, text in references.items() if name not in descriptors} | {ROOT: root}
    imports = [name for file in descriptors.values() for name in file.dependency]
    with TemporaryDirectory(prefix="lakehouse-protobuf-") as scratch:
        sources, empty, output = (Path(scratch) / name for name in ("sources", "empty", "descriptors"))
        empty.mkdir()
        _write(sources, files)
        # Google's definitions have precedence: columns depend on the meaning of `google.protobuf.Timestamp`.
        well_known, others = _published()
        includes = [f"--proto_path={folder}" for folder in (well_known, sources, *others)]
        # -I and -P: neither the working folder nor the environment adds to the import path.
        command = [sys.executable, "-I", "-P", "-c", _PROGRAM, "--include_imports", f"--descriptor_set_out={output}"]
        if any("confluent/" in text for text in [*files.values(), *imports]):
            descriptors = {file.name: file for file in _confluent().file} | descriptors
        if descriptors:
            # The compiler looks up names that it does not find as files in this set.
            known = Path(scratch) / "known"
            known.write_bytes(FileDescriptorSet(file=descriptors.values()).SerializeToString())
            command.append(f"--descriptor_set_in={known}")
        try:
            result = subprocess.run(  # noqa: S603 (this interpreter, isolated; names are checked)
                [*command, *includes, ROOT],
                cwd=empty,
                env={},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=MAX_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise SchemaError(
                f"The Protobuf schema did not compile within {MAX_SECONDS} seconds. Simplify it"
            ) from error
        if result.returncode or not output.exists():
            raise SchemaError(f"The Protobuf schema does not compile: {_reason(result, sources)}. Correct it")
        return FileDescriptorSet.FromString(output.read_bytes())


def descriptor(text: str, name: str) -> FileDescriptorProto | None:
    """Return the descriptor that a client registered instead of the source, under a name; None if it is a source."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None
    file.name = name
    return file


def require_plain_names(names: list[str]) -> None:
    """Require names that are relative paths of `.proto` files."""
    for name in names:
        if len(name) > MAX_NAME_CHARACTERS or not _NAME.fullmatch(name):
            raise SchemaError(
                f"The Protobuf schema has a reference named {name[:MAX_NAME_CHARACTERS]!r}, which is not the relative"
                " path of a .proto file, such as 'acme/money.proto'. Register the reference under such a name"
            )
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    if clash := sorted(folders & set(names)):
        raise SchemaError(
            f"The Protobuf schema has a reference named {clash[0]!r} and another one in a folder of that name. Rename"
            " one of them"
        )


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.write_text(text, encoding="utf-8")
        except UnicodeEncodeError as error:
            raise SchemaError(f"The Protobuf schema is not valid UTF-8: {error.reason}. Correct its text") from error


def _published() -> tuple[Path, list[Path]]:
    """Return the folder with Google's `google/protobuf`, and those with its other published sources."""
    compiler, common = find_spec("grpc_tools"), find_spec("google.rpc")
    assert compiler and compiler.origin
    others = [Path(folder).parent.parent for folder in (common.submodule_search_locations or ())[:1]] if common else []
    return Path(compiler.origin).parent / "_proto", others


@cache
def _confluent() -> FileDescriptorSet:
    """Return Confluent's files, which its clients do not register as references (Confluent, Protobuf serializer)."""
    from confluent_kafka.schema_registry.confluent import meta_pb2
    from confluent_kafka.schema_registry.confluent.type import decimal_pb2, variant_pb2
    from confluent_kafka.schema_registry.confluent.types import decimal_pb2 as former_decimal_pb2

    files = descriptor_pb2.FileDescriptorSet()
    for module in (descriptor_pb2, meta_pb2, decimal_pb2, variant_pb2, former_decimal_pb2):
        module.DESCRIPTOR.CopyToProto(files.file.add())
    return files


def _reason(result: subprocess.CompletedProcess[bytes], sources: Path) -> str:
    """Return the compiler's error message without the path of its folder."""
    message = result.stderr.decode(errors="replace").replace(f"{sources}/", "").strip()
    message = re.sub(rf"{ROOT}:(\d+):(\d+)", r"line \1, column \2", message).replace(ROOT, "the schema")
    lines = (line.rstrip(".") for line in message.splitlines() if not _LOG_LINE.match(line))
    return "; ".join(lines) or f"it ended with {result.returncode}"
