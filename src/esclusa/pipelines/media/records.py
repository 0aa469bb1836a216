"""What the pipeline keeps: the publications, in a table that was there before, and what the webhook has told already."""

from __future__ import annotations

from esclusa import Lifecycle, Record, above, track

OPEN = ("pending", "downloading", "error")
"""The states in which a publication has no file yet."""


class Publication(
    Record,
    table="meta_publicaciones_webhook",
    track=track(prefix="media_"),
    database_id=True,
    adopt={"success": {"imagen_local": above("")}},
    index=[("post_id",), ("status", "-attempts", "updated_at")],
):
    """A row that a webhook wrote, ours or another's. Of its own columns only ``imagen_local`` is ever written by a download."""

    post_id: str | None = None
    tipo_item: str | None = None
    imagen_url: str | None = None
    imagen_local: str | None = None

    lifecycle = Lifecycle("""
        pending -> downloading -> success
        downloading -> pending | error
        error -> pending
    """)


class Notice(
    Record, table="media_notices", key=("post_id", "part"), index=[("post_id",)], history=False
):
    """One medium of one post that we were told of: the same delivery again makes no second row. ``part`` is the medium's id, or
    its place among the pictures of the post; ``imagen_url`` its link as it was last told."""

    post_id: str
    part: str
    imagen_url: str | None = None

    lifecycle = Lifecycle("told")


RECORDS: tuple[type[Record], ...] = (Publication, Notice)
