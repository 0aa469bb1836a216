"""The records: publications in an existing table, their further pictures, webhook deliveries."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from esclusa import Lifecycle, Record, track

# The states of a publication whose file will be downloaded.
WAITING = ("pending", "downloading")

# Items of rows that the team's webhook writes for what others do with a post.
REACTIONS = ("comment", "reaction", "like", "love", "wow", "haha", "sad", "angry")

# Columns of the team's table that are used where it has them.
OPTIONAL = (
    "page_id",
    "nombre_nora",
    "mensaje",
    "created_time",
    "webhook_data",
    "procesada",
    "procesada_en",
    "imagen_descargada_en",
    "video_local",
    "video_url_public",
    "video_storage_path",
    "video_descargado_en",
    "media_sha256",
    "media_size",
    "media_type",
)


class Publication(
    Record,
    table="meta_publicaciones_webhook",
    track=track(prefix="media_"),
    database_id=True,
    optional=OPTIONAL,
    index=[("post_id",), ("status", "-attempts", "updated_at")],
):
    """A row written by this webhook or by another program.

    A download writes the columns of the file, ``procesada`` and the tracking columns.
    """

    post_id: str | None = None
    tipo_item: str | None = None
    imagen_url: str | None = None
    imagen_local: str | None = None
    page_id: str | None = None
    nombre_nora: str | None = None
    mensaje: str | None = None
    created_time: int | None = None
    webhook_data: Any = None
    procesada: bool | None = False
    procesada_en: datetime | None = None
    imagen_descargada_en: datetime | None = None
    video_local: str | None = None
    video_url_public: str | None = None
    video_storage_path: str | None = None
    video_descargado_en: datetime | None = None
    media_sha256: str | None = None
    media_size: int | None = None
    media_type: str | None = None

    lifecycle = Lifecycle("""
        pending -> downloading -> success
        downloading -> pending | error
        error -> pending
    """)


class FurtherPicture(
    Record,
    table="media_pictures",
    key=("post_id", "part"),
    index=[("post_id",)],
):
    """A further picture of a post whose table takes one row per post.

    ``part`` is the picture's id, or its position in the post.
    """

    post_id: str
    part: str
    imagen_url: str | None = None
    imagen_local: str | None = None
    tipo_item: str | None = None
    page_id: str | None = None
    nombre_nora: str | None = None
    media_sha256: str | None = None
    media_size: int | None = None
    media_type: str | None = None

    lifecycle = Publication.lifecycle


class MediaFile(
    Record,
    table="media_files",
    key=("publication", "sha256"),
    refs={"publication": Publication},
    index=[("publication",)],
    history=False,
):
    """What was downloaded for a publication whose table has no columns for it."""

    publication: str
    sha256: str
    size: int
    type: str
    path: str
    address: str

    lifecycle = Lifecycle("kept")


class WebhookDelivery(Record, table="media_deliveries", key="digest", index=[("-received_at",)]):
    """One call of Meta's webhook, kept whole before it is answered.

    ``body`` is what Meta sent. ``refused`` has the media that the table did not take, each with its
    position in the delivery, from 1, and the reason.
    """

    digest: str
    body: str
    received_at: datetime
    created: int = 0
    updated: int = 0
    known: int = 0
    refused: list[dict[str, Any]] = []

    lifecycle = Lifecycle(
        """
        received -> mapped | failed
        mapped | failed -> received
        """,
        finished=["mapped"],
        failed=["failed"],
        endless=True,
    )


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
    existing row. ``imagen_local`` is set for a file that was downloaded elsewhere. ``post`` has
    what the delivery says of the post, by column of the table.
    """

    post_id: str
    part: str
    tipo_item: str | None
    url: str | None
    edited: bool = False
    imagen_local: str | None = None
    post: dict[str, Any] = field(default_factory=dict, compare=False)

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
            **self.post,
        )

    def picture(self) -> FurtherPicture:
        """Return the further picture of a post that has a row already."""
        return FurtherPicture(
            post_id=self.post_id,
            part=self.part,
            imagen_url=self.url,
            tipo_item=self.tipo_item,
            page_id=self.post.get("page_id"),
            nombre_nora=self.post.get("nombre_nora"),
        )
