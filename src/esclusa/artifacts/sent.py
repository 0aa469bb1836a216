"""What stores to which objects are sent have in common."""

from __future__ import annotations

from collections.abc import Sequence

from esclusa.ports.artifacts import Artifacts, Body, Kept


class SentArtifacts(Artifacts):
    """A store that has an object safe by the time it answers."""

    async def keep(self, path: str, body: Body, *, content_type: str | None = None) -> Kept:
        return Kept(await self.put(path, body, content_type=content_type))

    async def sync(self, kept: Sequence[Kept]) -> None:
        """Nothing waits for it."""
