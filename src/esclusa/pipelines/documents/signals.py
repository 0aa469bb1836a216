"""Signals: how a command, a watcher or an event says that a folder is ready."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from esclusa.pipelines.documents.buckets import FLAG, generation_of, is_text, parse_uri
from esclusa.pipelines.documents.events import Ready
from esclusa.pipelines.documents.records import Signal, folio_id


def from_event(event: Ready) -> Signal:
    """The same event again makes the same signal."""
    return Signal(
        signal_key=f"event {event.source} {event.event_id}", folio_id=folio_id(event.bucket, event.folder_prefix), bucket=event.bucket,
        folder_prefix=event.folder_prefix, eventarc_event_id=event.event_id,
    )  # fmt: skip


def from_command(uri: str, *, reprocess: bool = False, force: bool = False) -> Signal:
    """Raises BadUri."""
    bucket, prefix = parse_uri(uri)
    return Signal(
        signal_key=f"command {secrets.token_hex(8)}", folio_id=folio_id(bucket, prefix), bucket=bucket, folder_prefix=prefix,
        reprocess=reprocess or force, force=force,
    )  # fmt: skip


def from_flags(root: Path) -> list[Signal]:
    """One for every empty flag below the folder; the same flag again makes the same signal."""
    found = []
    for flag in sorted(Path(folder, FLAG) for folder, _, files in os.walk(root) if FLAG in files):
        try:
            status = flag.stat()
        except OSError:
            continue  # folders come and go
        if not stat.S_ISREG(status.st_mode) or status.st_size != 0 or not is_text(str(flag)):
            continue
        folder = flag.parent
        bucket, prefix = (
            (root, folder.relative_to(root).as_posix())
            if folder != root
            else (root.parent, root.name)
        )
        key = f"flag {flag} {generation_of(status)}"
        found.append(
            Signal(
                signal_key=key,
                folio_id=folio_id(str(bucket), prefix),
                bucket=str(bucket),
                folder_prefix=prefix,
            )
        )
    return found
