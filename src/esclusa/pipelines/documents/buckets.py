"""Buckets of documents: folders on this machine, or Cloud Storage."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from esclusa import EsclusaError, Failure, Permanent, Text

FLAG = "is_ready"
_CLOUD_URI = re.compile(r"gs://([^/]+)/(.*)", re.IGNORECASE | re.DOTALL)
# Folder names may contain `#` and `?`.
_FILE_URI = re.compile(r"file:(?://(?:localhost)?(?=/)|(?!//))(/.*)", re.IGNORECASE | re.DOTALL)
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


@dataclass(frozen=True, slots=True)
class Blob:
    """An object in a listing; ``generation`` changes whenever its content does."""

    name: str
    generation: str
    size: int
    uri: str
    updated: datetime | None = None


@dataclass(frozen=True, slots=True)
class FlagRule:
    """Which objects are flags of ready folders.

    By default only an empty ``{folder_prefix}/is_ready``. ``root``: also one in the root of the
    bucket, which stands for the whole bucket.
    """

    any_case: bool = False
    any_size: bool = False
    root: bool = False

    def is_name(self, last: str) -> bool:
        """Return whether the last part of a name is that of a flag."""
        return (last.lower() if self.any_case else last) == FLAG

    def is_flag(self, blob: Blob) -> bool:
        """Return whether a listed object is a flag."""
        return self.is_name(blob.name.rpartition("/")[2]) and (self.any_size or blob.size == 0)


class DocumentBucket(Protocol):
    """One bucket.

    Raises Failure for transient errors, and Permanent for an object that no longer exists in this
    generation.
    """

    def list(self, prefix: str) -> AsyncIterator[Blob]:
        """Yield the objects below ``prefix/`` by name; raise Permanent if there is no bucket.

        An empty prefix stands for the whole bucket.
        """

    async def head(self, blob: Blob, count: int) -> bytes:
        """Return its first bytes."""

    async def read(self, name: str, generation: str) -> bytes:
        """Return the whole content of this generation."""


class BadUri(EsclusaError):
    """Not the URI of a folder."""


def parse_uri(uri: str) -> tuple[str, str]:
    """Return bucket and prefix of ``gs://bucket/prefix`` or ``file:///parent/folder``.

    Raises BadUri.
    """
    if found := _CLOUD_URI.fullmatch(uri):
        bucket, prefix = found[1], found[2].strip("/")
        if prefix:
            return bucket, prefix
    elif found := _FILE_URI.fullmatch(uri):
        path = os.path.normpath(unquote(found[1]))
        if Path(path).name and "\0" not in path:
            return str(Path(path).parent), Path(path).name
    raise BadUri(f"{uri!r} is not a folder: write gs://bucket/folder or file:///parent/folder")


def object_name(bucket: str, uri: str) -> str:
    """Return the name of an object within its bucket, from its URI."""
    if uri.startswith("gs://"):
        return uri.removeprefix(f"gs://{bucket}/")
    return str(Path(uri.removeprefix("file://")).relative_to(bucket))


class Buckets:
    """Opens a bucket by name: a path from the settings, an absolute path, or else Cloud Storage."""

    def __init__(self, paths: dict[str, str]) -> None:
        self._paths = paths
        self._open: dict[str, DocumentBucket] = {}

    def is_local(self, name: str) -> bool:
        """Return whether a bucket is a folder on this machine."""
        return name in self._paths or name.startswith("/")

    def __getitem__(self, name: str) -> DocumentBucket:
        if name not in self._open:
            if name in self._paths:
                self._open[name] = LocalBucket(Path(self._paths[name]), f"gs://{name}/")
            elif name.startswith("/"):
                self._open[name] = LocalBucket(Path(name), f"file://{name.rstrip('/')}/")
            else:
                from esclusa.pipelines.documents.cloud_storage import CloudBucket  # noqa: PLC0415

                self._open[name] = CloudBucket(name)
        return self._open[name]


class LocalBucket:
    """A folder as a bucket; links out of the folder are listed but cannot be read."""

    def __init__(self, root: Path, base: str) -> None:
        self._root, self._base = root, base
        self._real = root.resolve()

    async def list(self, prefix: str) -> AsyncIterator[Blob]:
        for blob in await asyncio.to_thread(self._list, prefix):
            yield blob

    def _list(self, prefix: str) -> Sequence[Blob]:
        if not self._root.is_dir():
            why = Text("there is no bucket at {folder}", folder=self._root)
            raise Permanent(why, type="bucket_not_found")
        top = self._inside(prefix) if prefix else self._root
        walked = () if top is None else os.walk(top, onerror=self._check_missing)
        blobs = [self._blob(Path(folder, name)) for folder, _, files in walked for name in files]
        return sorted((blob for blob in blobs if blob is not None), key=lambda blob: blob.name)

    def _blob(self, path: Path) -> Blob | None:
        name = path.relative_to(self._root).as_posix()
        try:
            status = path.lstat() if self._inside(name) is None else path.stat()
        except OSError as error:
            self._check_missing(error)
            return None  # deleted after the folder was read
        uri = (self._base + name).encode("utf-8", "backslashreplace").decode()
        updated = datetime.fromtimestamp(status.st_mtime, UTC)
        return Blob(name, generation_of(status), status.st_size, uri, updated)

    def _check_missing(self, error: OSError) -> None:
        """Ignore a missing file; any other error would make the listing incomplete."""
        if error.errno not in _MISSING:
            raise Failure(f"{error.filename}: {error.strerror}", type="storage_error") from None

    async def head(self, blob: Blob, count: int) -> bytes:
        return await asyncio.to_thread(self._read, blob.name, blob.generation, count)

    async def read(self, name: str, generation: str) -> bytes:
        return await asyncio.to_thread(self._read, name, generation, -1)

    def _read(self, name: str, generation: str, count: int) -> bytes:
        path = self._inside(name)
        try:
            if path is None:
                raise Permanent(
                    Text("{uri} is a link to a place outside the bucket", uri=self._base + name),
                    type="object_gone",
                )
            with path.open("rb") as file:
                content = file.read(count)
                if generation_of(os.fstat(file.fileno())) == generation:
                    return content
        except FileNotFoundError:
            why = Text("{uri} no longer exists", uri=self._base + name)
            raise Permanent(why, type="object_gone") from None
        except OSError as error:
            raise Failure(f"{self._base}{name}: {error.strerror}", type="storage_error") from None
        raise Permanent(
            Text(
                "{uri} was replaced: generation {generation} no longer exists",
                uri=self._base + name,
                generation=generation,
            ),
            type="object_gone",
        )

    def _inside(self, name: str) -> Path | None:
        try:
            path = (self._root / name).resolve()
        except (RuntimeError, OSError):  # a cycle of links
            return None
        return path if path.is_relative_to(self._real) else None


def is_text(name: str) -> bool:
    """Return whether a name is valid UTF-8: other names cannot be stored."""
    return not any("\ud800" <= char <= "\udfff" for char in name)


def generation_of(status: os.stat_result) -> str:
    """Return the generation of a local file, which changes when it is written or replaced."""
    return f"{status.st_mtime_ns}{status.st_size % 100_000:05d}{status.st_ino % 1000:03d}"
