"""Where documents come from: a bucket as a folder on this machine, or in Cloud Storage."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from esclusa import EsclusaError, Failure, Permanent
from esclusa.model.value import value

FLAG = "is_ready"
_CLOUD = re.compile(r"gs://([^/]+)/(.*)", re.IGNORECASE | re.DOTALL)
_FILE = re.compile(r"file:(?://(?:localhost)?(?=/)|(?!//))(/.*)", re.IGNORECASE | re.DOTALL)
"""Whatever a folder's name has in it: ``#`` and ``?`` end no address here."""
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


@value
class Blob:
    """An object as a listing shows it. ``generation`` changes whenever its content does."""

    name: str
    generation: str
    size: int
    uri: str


class Bucket(Protocol):
    """One bucket. What is transient raises Failure; an object that is not there any more in this generation is Permanent."""

    def list(self, prefix: str) -> AsyncIterator[Blob]:
        """Every object below ``prefix/``, in order of name. Permanent if there is no such bucket."""

    async def head(self, blob: Blob, count: int) -> bytes:
        """Its first bytes."""

    async def read(self, name: str, generation: str) -> bytes:
        """The whole content of this generation."""


class BadUri(EsclusaError):
    """Not the address of a folder."""


def parse_uri(uri: str) -> tuple[str, str]:
    """The bucket and the prefix of ``gs://bucket/prefix`` or ``file:///parent/folder``. Raises BadUri."""
    if found := _CLOUD.fullmatch(uri):
        bucket, prefix = found[1], found[2].strip("/")
        if prefix:
            return bucket, prefix
    elif found := _FILE.fullmatch(uri):
        path = os.path.normpath(unquote(found[1]))
        if Path(path).name and "\0" not in path:
            return str(Path(path).parent), Path(path).name
    raise BadUri(f"{uri!r} is not a folder: write gs://bucket/folder or file:///parent/folder")


def object_name(bucket: str, uri: str) -> str:
    """The name of an object within its bucket, from its URI."""
    if uri.startswith("gs://"):
        return uri.removeprefix(f"gs://{bucket}/")
    return str(Path(uri.removeprefix("file://")).relative_to(bucket))


class Buckets:
    """Finds a bucket by its name: one that the settings give a path, a path itself, else Cloud Storage."""

    def __init__(self, paths: dict[str, str]) -> None:
        self._paths = paths
        self._open: dict[str, Bucket] = {}

    def __getitem__(self, name: str) -> Bucket:
        if name not in self._open:
            if name in self._paths:
                self._open[name] = LocalBucket(Path(self._paths[name]), f"gs://{name}/")
            elif name.startswith("/"):
                self._open[name] = LocalBucket(Path(name), f"file://{name.rstrip('/')}/")
            else:
                from esclusa.pipelines.documents.cloud import CloudBucket  # noqa: PLC0415 - the cloud's library is an extra

                self._open[name] = CloudBucket(name)
        return self._open[name]


class LocalBucket:
    """A folder as a bucket. Links that lead outside of it are listed and cannot be read."""

    def __init__(self, root: Path, base: str) -> None:
        self._root, self._base = root, base
        self._real = root.resolve()

    async def list(self, prefix: str) -> AsyncIterator[Blob]:
        for blob in await asyncio.to_thread(self._found, prefix):
            yield blob

    def _found(self, prefix: str) -> Sequence[Blob]:
        if not self._root.is_dir():
            raise Permanent(f"there is no bucket at {self._root}", type="bucket_not_found")
        top = self._inside(prefix) if prefix else self._root
        walked = () if top is None else os.walk(top, onerror=self._unread)
        blobs = [self._blob(Path(folder, name)) for folder, _, files in walked for name in files]
        return sorted((blob for blob in blobs if blob is not None), key=lambda blob: blob.name)

    def _blob(self, path: Path) -> Blob | None:
        name = path.relative_to(self._root).as_posix()
        try:
            status = path.lstat() if self._inside(name) is None else path.stat()
        except OSError as error:
            self._unread(error)
            return None  # gone since the folder was read
        uri = (self._base + name).encode("utf-8", "backslashreplace").decode()
        return Blob(name, generation_of(status), status.st_size, uri)

    def _unread(self, error: OSError) -> None:
        """Nothing, if what could not be read is not there; a listing that lacks more than that is none."""
        if error.errno not in _NOT_THERE:
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
                    f"{self._base}{name} is a link that leads to no object of the bucket",
                    type="object_gone",
                )
            with path.open("rb") as file:
                content = file.read(count)
                if generation_of(os.fstat(file.fileno())) == generation:
                    return content
        except FileNotFoundError:
            raise Permanent(
                f"{self._base}{name} is not there any more", type="object_gone"
            ) from None
        except OSError as error:
            raise Failure(f"{self._base}{name}: {error.strerror}", type="storage_error") from None
        raise Permanent(
            f"{self._base}{name} was replaced: generation {generation} is not there any more",
            type="object_gone",
        )

    def _inside(self, name: str) -> Path | None:
        try:
            path = (self._root / name).resolve()
        except (RuntimeError, OSError):  # links that lead to each other
            return None
        return path if path.is_relative_to(self._real) else None


def is_text(name: str) -> bool:
    """Whether a name is text: what is no UTF-8, on disk or in an event, can be written nowhere else."""
    return not any("\ud800" <= char <= "\udfff" for char in name)


def generation_of(status: os.stat_result) -> str:
    """A local file's generation: another one whenever the file is written or replaced."""
    return f"{status.st_mtime_ns}{status.st_size % 100_000:05d}{status.st_ino % 1000:03d}"
