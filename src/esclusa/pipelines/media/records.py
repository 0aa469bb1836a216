"""The records of the pipeline: publications in an existing table, and the media received so far."""

from __future__ import annotations

from dataclasses import dataclass

from esclusa import Lifecycle, Record, above, track

# The states of a publication whose file is not downloaded yet.
WITHOUT_FILE = ("pending", "downloading", "error")


class Publication(
    Record,
    table="meta_publicaciones_webhook",
    track=track(prefix="media_"),
    database_id=True,
    adopt={"success": {"imagen_local": above("")}},
    index=[("post_id",), ("status", "-attempts", "updated_at")],
):
    """A row written by this webhook or by another program.

    A download writes only ``imagen_local`` and the tracking columns.
    """

    post_id: str | None = None
    tipo_item: str | None = None
    imagen_url: str | None = None
    imagen_local: str | None = None

    lifecycle = Lifecycle("""
        pending -> downloading -> success
        downloading -> pending | error
        error -> pending
    """)


class MediaNotice(
    Record, table="media_notices", key=("post_id", "part"), index=[("post_id",)], history=False
):
    """One medium of a post that was received, so that a repeated delivery adds no second row.

    ``part`` is the medium's id, or its position among the pictures of the post. ``imagen_url`` is
    the link received last.
    """

    post_id: str
    part: str
    imagen_url: str | None = None

    lifecycle = Lifecycle("received", renamed={"told": "received"})


@dataclass(frozen=True, slots=True)
class Medium:
    """One medium of one post, as a delivery or a file names it.

    ``url`` is None for a post without media of its own. ``edited`` media replace the link of an
    existing row. ``imagen_local`` is set for a file that was downloaded elsewhere.
    """

    post_id: str
    part: str
    tipo_item: str | None
    url: str | None
    edited: bool = False
    imagen_local: str | None = None

    def notice(self) -> MediaNotice:
        """Return the notice that is inserted with the publication, or refuses a duplicate."""
        return MediaNotice(post_id=self.post_id, part=self.part, imagen_url=self.url)

    def publication(self) -> Publication:
        return Publication(
            post_id=self.post_id,
            tipo_item=self.tipo_item,
            imagen_url=self.url,
            imagen_local=self.imagen_local,
            status="success" if self.imagen_local else "",
        )
