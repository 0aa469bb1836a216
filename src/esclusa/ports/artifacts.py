"""The artifact protocol: files that a pipeline keeps."""

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
    """What the store knows of an object. ``version`` changes whenever its content does."""

    path: str
    size: int
    version: str
    modified: datetime | None


class KeptArtifact:
    """An object that is there and safe after ``sync``. ``error`` is what that said if it is not."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.error: ArtifactError | None = None


class Artifacts(Protocol):
    """Where files live. Paths are relative, cleaned, with forward slashes; none leads outside the root.

    Everything that fails raises ArtifactError (ArtifactMissing, ArtifactExists), which handlers may let pass.
    """

    url: str
    """Where it is, without secrets: for messages."""

    async def open(self) -> None:
        """Connect, and check that it can be used. Raises ArtifactError with the reason."""

    async def close(self) -> None: ...

    async def put(
        self, path: str, body: Body, *, content_type: str | None = None, create: bool = False
    ) -> str:
        """Write an object whole or not at all; return its public URL. ``create``: ArtifactExists if there is one."""

    async def keep(self, path: str, body: Body, *, content_type: str | None = None) -> KeptArtifact:
        """As ``put``, for whoever tells nobody of the object before ``sync``: many objects are then written together, while whoever
        kept them goes on, and share one wait for the disk. A store to which objects are sent has nothing to wait for."""

    async def sync(self, kept: Sequence[KeptArtifact]) -> None:
        """Make these safe. Never raises: what cannot be safe has its error."""

    async def get(self, path: str) -> bytes:
        """The whole content. ArtifactMissing if there is none."""

    def stream(self, path: str, chunk: int = 1 << 20) -> AsyncIterator[bytes]:
        """The content in chunks, bounded memory."""

    async def info(self, path: str) -> ArtifactInfo | None:
        """What is known of it; None if there is none."""

    def list(self, prefix: str = "") -> AsyncIterator[ArtifactInfo]:
        """Every object whose path begins with the prefix, in order of path."""

    async def delete(self, path: str) -> None:
        """Remove it; no error if there is none."""

    def public_url(self, path: str) -> str:
        """The address at which a reader finds the object."""
