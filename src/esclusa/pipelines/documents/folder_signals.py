"""Signals that a folder is ready, from an event, a command or a watched directory."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from esclusa.pipelines.documents.buckets import FLAG, generation_of, is_text, parse_uri
from esclusa.pipelines.documents.events import ReadyEvent
from esclusa.pipelines.documents.records import FolderSignal, folio_id


def from_event(event: ReadyEvent) -> FolderSignal:
    """Return the signal of an event; a repeated event gives the same signal."""
    return FolderSignal(
        signal_key=f"event {event.source} {event.event_id}",
        folio_id=folio_id(event.bucket, event.folder_prefix),
        bucket=event.bucket,
        folder_prefix=event.folder_prefix,
        eventarc_event_id=event.event_id,
    )


def from_command(uri: str, *, reprocess: bool = False, force: bool = False) -> FolderSignal:
    """Return a new signal for the folder at ``uri``; raises BadUri."""
    bucket, prefix = parse_uri(uri)
    return FolderSignal(
        signal_key=f"command {secrets.token_hex(8)}",
        folio_id=folio_id(bucket, prefix),
        bucket=bucket,
        folder_prefix=prefix,
        reprocess=reprocess or force,
        force=force,
    )


def from_flags(root: Path) -> list[FolderSignal]:
    """Return a signal for every empty flag below ``root``; the same flag gives the same signal."""
    signals = []
    for flag in sorted(Path(folder, FLAG) for folder, _, files in os.walk(root) if FLAG in files):
        try:
            status = flag.stat()
        except OSError:
            continue  # removed in the meantime
        if not stat.S_ISREG(status.st_mode) or status.st_size != 0 or not is_text(str(flag)):
            continue
        folder = flag.parent
        if folder == root:
            bucket, prefix = root.parent, root.name
        else:
            bucket, prefix = root, folder.relative_to(root).as_posix()
        signals.append(
            FolderSignal(
                signal_key=f"flag {flag} {generation_of(status)}",
                folio_id=folio_id(str(bucket), prefix),
                bucket=str(bucket),
                folder_prefix=prefix,
            )
        )
    return signals
