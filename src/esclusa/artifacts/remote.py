"""The part that all remote artifact stores share."""

from __future__ import annotations

from collections.abc import Sequence

from esclusa.ports.artifacts import Artifacts, Body, KeptArtifact


class RemoteArtifacts(Artifacts):
    """A store whose ``put`` returns only after the object is durable, so ``sync`` has no work."""

    async def keep(self, path: str, body: Body, *, content_type: str | None = None) -> KeptArtifact:
        return KeptArtifact(await self.put(path, body, content_type=content_type))

    async def sync(self, kept: Sequence[KeptArtifact]) -> None:
        """Do nothing: ``keep`` has waited for the store."""
