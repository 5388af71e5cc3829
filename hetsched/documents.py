"""The JSON documents: versioned, strict, restored to the bit.

One rule for absent numbers: ``null`` stands for NaN in durations, transfers and work (impossible,
unknown) and for infinity in memory and bandwidth (unlimited).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import importlib
import json
import math
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar, cast

import msgspec
import numpy as np

from hetsched.arguments import checked, shown
from hetsched.arrays import FloatArray, Frozen
from hetsched.errors import InvalidArgument, InvalidProblem, UnsupportedFeature

__all__ = ["KINDS", "encode", "read", "schema", "write", "write_bytes"]

VERSION = 1
TOGETHER = 10_000
"""The most rows that are objects at a time when a document is written."""
LARGEST_DOCUMENT = 2**30
"""The most bytes of a document: a problem of a million tasks on three devices has 300 MB, on twenty-four 700 MB."""
Number = float | None
Real = float | Literal["nan", "inf", "-inf"]
"""A number that may be nan or infinite, which `verify` reports, not the document."""
Whole = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A whole number within the range of int64 columns."""
KINDS: Mapping[str, str] = {
    "hetsched-graph": "hetsched.problem.document:GraphDocument",
    "hetsched-cluster": "hetsched.problem.document:ClusterDocument",
    "hetsched-problem": "hetsched.problem.document:ProblemDocument",
    "hetsched-schedule": "hetsched.schedule.document:ScheduleDocument",
    "hetsched-solution": "hetsched.search.solution_document:SolutionDocument",
    "hetsched-stages": "hetsched.schedule.stage_document:StagesDocument",
    "hetsched-timeline": "hetsched.costs.timeline_document:TimelineDocument",
    "hetsched-profile": "hetsched.costs.profile_document:ProfileDocument",
    "hetsched-model": "hetsched.chain.card_document:ModelDocument",
    "hetsched-machine": "hetsched.chain.machine_document:MachineDocument",
    "hetsched-plan": "hetsched.planning.plan_document:PlanDocument",
    "hetsched-serving": "hetsched.planning.serving_document:ServingDocument",
    "hetsched-rates": "hetsched.costs.rates_document:RatesDocument",
    "hetsched-certificate": "hetsched.certificates.document:CertificateDocument",
    "hetsched-registry": "hetsched.instances.registry:FamilyDocument",
}
"""Module and class of the document of each `format` that `read` supports, imported at first use."""

Value = TypeVar("Value")


class Row(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Base class of parts of documents: defaults are not written, unknown fields are refused."""


class Document(Row, Generic[Value], kw_only=True, tag_field="format"):
    """Base class of documents: a JSON object whose `format` is its kind."""

    version: int
    keys_once: ClassVar[bool] = False
    """Whether a key that an object has twice is refused, as for claims and proofs; else the last one counts."""

    @classmethod
    def of(cls, value: Value) -> Self:
        """Return the document of a value."""
        raise TypeError(f"{cls.__name__} has no value class")

    def value(self) -> Value:
        """Return the value of the document."""
        raise TypeError(f"{type(self).__name__} has no value class")


class _Header(msgspec.Struct):
    format: str
    version: int = VERSION


def optional(column: FloatArray) -> list[Any]:
    """Return nested lists with None for numbers that are not finite."""
    finite = np.isfinite(column)
    if finite.all():
        return cast("list[Any]", column.tolist())
    values = column.astype(object)
    values[~finite] = None
    return cast("list[Any]", values.tolist())


def real(value: float) -> Any:
    """Return a number, or "nan", "inf" or "-inf"."""
    return float(value) if math.isfinite(value) else str(float(value))


def reals(column: FloatArray) -> list[Any]:
    """Return a list of numbers, with "nan", "inf" and "-inf" for those that are not finite."""
    values: list[Any] = column.tolist()
    return values if np.isfinite(column).all() else list(map(real, values))


def rows(count: int, part: Callable[[slice], Iterable[Any]]) -> list[Any]:
    """Return a list for a document, made of the parts `part(slice)`.

    Of many rows it has the JSON text, made part by part: objects for all of a million tasks at a time would need a gigabyte.
    """
    if count <= TOGETHER:
        return list(part(slice(0, count)))
    text = bytearray()
    extend(text, (list(part(slice(first, first + TOGETHER))) for first in range(0, count, TOGETHER)))
    return cast("list[Any]", msgspec.Raw(text))


def extend(text: bytearray, parts: Iterable[list[Any]]) -> None:
    """Append the JSON text of one list, given in parts that are not empty."""
    encoder, begin = msgspec.json.Encoder(), len(text)
    for part in parts:
        end = max(len(text) - 1, begin)  # that of the list so far without its bracket
        encoder.encode_into(part, text, end)
        text[end] = ord("," if end > begin else "[")
    if len(text) == begin:
        text += b"[]"


def to_document(value: object) -> Document[Any]:
    """Return the document of a value, whose class has the format."""
    where = KINDS.get(getattr(type(value), "_format", ""))
    if where is None:
        raise InvalidArgument(
            f"{shown(value)} has no document format; give a value of one of the kinds "
            f"{', '.join(kind.removeprefix('hetsched-') for kind in KINDS)}"
        )
    made: Document[Any] = _document_class(where).of(value)
    return made


@functools.cache
def _document_class(where: str) -> type[Document[Any]]:
    """Import a document's class from ``module:Class``."""
    module, _, name = where.partition(":")
    document_class: type[Document[Any]] = getattr(importlib.import_module(module), name)
    return document_class


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Disable garbage collection while very many objects are made, none of which is garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def encode(value: object) -> bytes:
    """Return the JSON text of a value's document.

    Raises
    ------
    UnsupportedFeature
        The document would be too large.
    """
    return bytes(_encoded(value))


def _encoded(value: object) -> bytearray:
    """Return the JSON text of a value's document, which is not copied."""
    data = bytearray()
    with _no_collection():
        msgspec.json.Encoder().encode_into(to_document(value), data)
    data += b"\n"
    if len(data) > LARGEST_DOCUMENT:
        raise UnsupportedFeature(f"the document would have {len(data)} bytes, and {LARGEST_DOCUMENT} are allowed; pickle the value instead")
    return data


def decode(data: bytes | str, kinds: Mapping[str, str] = KINDS, name: str = "document") -> Any:
    """Return the value of a JSON document.

    Raises
    ------
    InvalidProblem
        One line with the place in the document, the rule and the value.
    """
    try:
        header = msgspec.json.decode(data, type=_Header)
        kind = kinds.get(header.format)
        if kind is None:
            raise InvalidProblem(f"{name}: format {header.format!r} is not one of {', '.join(map(repr, kinds))}")
        if header.version != VERSION:
            raise InvalidProblem(f"{name}: version {header.version} of {header.format} is not version {VERSION}, which this hetsched reads")
        with _no_collection():
            document_class = _document_class(kind)
            if document_class.keys_once:
                _check_keys(data, name)
            return msgspec.json.decode(data, type=document_class).value()
    except RecursionError:
        raise InvalidProblem(f"{name}: the JSON is nested too deeply to be a document") from None
    except (msgspec.DecodeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidProblem(f"{name}: {' '.join(str(error).split())}") from None


def _check_keys(data: bytes | str, name: str) -> None:
    """Raise `InvalidProblem` if an object of a JSON text has a key twice."""

    def check(pairs: list[tuple[str, Any]]) -> None:
        keys = [key for key, _ in pairs]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise InvalidProblem(f"{name} has the key {shown(twice)} twice in an object; leave one of them out")

    json.loads(data, object_pairs_hook=check)


def load(path: str | os.PathLike[str], kinds: Mapping[str, str] = KINDS) -> Any:
    """Return the value in the JSON document at `path`, which may be packed by gzip; see `decode`."""
    with open(path, "rb") as file:
        data = file.read(LARGEST_DOCUMENT + 1)  # the file may be an endless device
    if data.startswith(b"\x1f\x8b"):
        import zlib

        try:
            data = zlib.decompressobj(wbits=31).decompress(data, LARGEST_DOCUMENT + 1)
        except zlib.error as error:
            raise InvalidProblem(f"{os.fspath(path)} is damaged: {error}; make it anew") from None
    if len(data) > LARGEST_DOCUMENT:
        raise InvalidProblem(f"{os.fspath(path)} has more than the {LARGEST_DOCUMENT} bytes that a document may have")
    return decode(data, kinds, os.fspath(path))


@checked
def write(value: object, path: str | os.PathLike[str]) -> None:
    """Write a value's document to `path`, completely or not at all."""
    write_bytes(_encoded(value), path)


@checked
def write_bytes(data: bytes | bytearray, path: str | os.PathLike[str]) -> None:
    """Write a file completely or not at all: as a new file that replaces the old one and keeps its mode.

    A symbolic link is kept and its target replaced. Devices and pipes are written to directly.

    Raises
    ------
    OSError
        Its message has the file and its state.
    """
    outcome = ""
    try:
        if _special(Path(path)):
            with open(path, "ab") as file:  # standard output may be a file with contents
                file.write(data)
            return
        outcome = "; nothing is written"
        target, status = Path(os.path.realpath(path)), None
        with contextlib.suppress(FileNotFoundError):
            status = target.stat()
            outcome = "; the file is unchanged"
        _replace(target, data, status)
    except OSError as error:
        remedy = "make room, or name a file elsewhere" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "name another file"
        text = f"{error.strerror or error}{outcome and f'{outcome}; {remedy}'}"
        raise OSError(error.errno, text, os.fspath(path)) from None


def _special(path: Path) -> bool:
    """Return whether `path` cannot be replaced by a new file: a device, a pipe, a file descriptor."""
    return path.exists() and (not path.is_file() or os.path.abspath(path).startswith(("/dev/", "/proc/")))


def _replace(target: Path, data: bytes | bytearray, status: os.stat_result | None) -> None:
    """Write a new file in place of one with that `status`, or of none."""
    if status is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    temporary = target.parent / f".hetsched-{secrets.token_hex(8)}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if status is None else 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)  # a full disk raises here, before the old file is replaced
        if status is not None:
            with contextlib.suppress(OSError, AttributeError):  # only root may change owners; Windows has none
                os.chown(temporary, status.st_uid, status.st_gid)
            os.chmod(temporary, stat.S_IMODE(status.st_mode))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


@checked
def read(path: str | os.PathLike[str]) -> Frozen:
    """Return the graph, problem, schedule, profile, model or other value of the JSON document at `path`, by its `format`; see `KINDS`.

    Raises
    ------
    InvalidProblem, InvalidSchedule
        One line with the place in the document, the rule and the value.
    OSError
        The file cannot be read.
    """
    return load(path)  # type: ignore[no-any-return]


@checked
def schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of document, a key of `KINDS` without ``hetsched-``: graph, cluster, problem, ..."""
    name = f"hetsched-{kind}"
    if name not in KINDS:
        raise InvalidProblem(f"no document kind {kind!r}; choose from {', '.join(key.removeprefix('hetsched-') for key in KINDS)}")
    made = msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(_document_class(KINDS[name]))))  # its defaults are tuples
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}
