"""The protocol of artifact stores: the files of a pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeAlias

from esclusa.model.errors import ArtifactError
from esclusa.model.value import value

Body: TypeAlias = bytes | Path | AsyncIterable[bytes]


@value
class ArtifactInfo:
    """The description of an object. ``version`` changes whenever its content does."""

    path: str
    size: int
    version: str
    modified: datetime | None


class KeptArtifact:
    """An object that ``keep`` wrote. After ``sync`` it is durable, or ``error`` says why not."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.error: ArtifactError | None = None


class Artifacts(Protocol):
    """A store of files. Paths are relative, with forward slashes, and never lead outside its root.

    Every failure raises ArtifactError (ArtifactMissing, ArtifactExists). A handler may let it pass.
    """

    # The store's address without secrets, for messages.
    url: str

    async def open(self) -> None:
        """Connect, and check that the store can be used. Raises ArtifactError with the reason."""

    async def close(self) -> None: ...

    async def put(
        self, path: str, body: Body, *, content_type: str | None = None, create: bool = False
    ) -> str:
        """Write an object whole or not at all; return its public URL once it is durable.

        With ``create``, raise ArtifactExists if there is an object of that name.
        """

    async def keep(
        self, path: str, body: Body, *, content_type: str | None = None, create: bool = False
    ) -> KeptArtifact:
        """Write an object that becomes durable with ``sync``; refer to it only after that.

        A folder writes many such objects together in the background and syncs them at once. A
        remote store does the same as in ``put``. With ``create``, an object of that name is left
        as it is, and ArtifactExists is raised here or is the error after ``sync``.
        """

    async def sync(self, kept: Sequence[KeptArtifact]) -> None:
        """Make these objects durable. Never raises: an object that cannot be gets its error."""

    async def get(self, path: str) -> bytes:
        """Return the whole content; ArtifactMissing if there is no such object."""

    def stream(self, path: str, chunk: int = 1 << 20) -> AsyncIterator[bytes]:
        """Yield the content in chunks, with bounded memory."""

    async def info(self, path: str) -> ArtifactInfo | None:
        """Describe an object; None if it does not exist."""

    def list(self, prefix: str = "") -> AsyncIterator[ArtifactInfo]:
        """Yield every object whose path begins with the prefix, in order of path."""

    async def delete(self, path: str) -> None:
        """Remove an object. An object that does not exist is no error."""

    def public_url(self, path: str) -> str:
        """The address at which a reader finds the object."""
