"""Signals that a folder is ready, from an event, a command or a watched directory."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from esclusa import Runtime
from esclusa.pipelines.documents import origin
from esclusa.pipelines.documents.buckets import FlagRule, generation_of, is_text, parse_uri
from esclusa.pipelines.documents.events import DEFAULT_FLAG, ReadyEvent
from esclusa.pipelines.documents.progress_log import LogLine, folder_line
from esclusa.pipelines.documents.records import FolderSignal, Folio, folio_id
from esclusa.pipelines.documents.settings import DocumentsSettings


def from_event(event: ReadyEvent) -> FolderSignal:
    """Return the signal of an event; a repeated event gives the same signal."""
    return FolderSignal(
        signal_key=f"event {event.source} {event.event_id}",
        folio_id=folio_id(event.bucket, event.folder_prefix),
        bucket=event.bucket,
        folder_prefix=event.folder_prefix,
        eventarc_event_id=event.event_id,
    )


def from_command(
    uri: str, *, reprocess: bool = False, force: bool = False, unread: bool = False
) -> FolderSignal:
    """Return a new signal for the folder at ``uri``; raises BadUri."""
    bucket, prefix = parse_uri(uri)
    return FolderSignal(
        signal_key=f"command {secrets.token_hex(8)}",
        folio_id=folio_id(bucket, prefix),
        bucket=bucket,
        folder_prefix=prefix,
        reprocess=reprocess or force or unread,
        force=force,
        unread=unread,
    )


def from_flags(root: Path, rule: FlagRule = DEFAULT_FLAG) -> list[FolderSignal]:
    """Return a signal for every folder below ``root`` with a flag.

    The same flag gives the same signal. Several spellings in one folder are one flag.
    """
    flags = (
        Path(folder, min(names))
        for folder, _, files in os.walk(root)
        if (names := [name for name in files if rule.is_name(name)])
    )
    signals = []
    for flag in sorted(flags):
        try:
            status = flag.stat()
        except OSError:
            continue  # removed in the meantime
        empty = status.st_size == 0 or rule.any_size
        if not stat.S_ISREG(status.st_mode) or not empty or not is_text(str(flag)):
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


async def receive(runtime: Runtime, signal: FolderSignal) -> tuple[str, str]:
    """Record a signal, and its folder if it is new; return their ids.

    The folder is PENDING and its INIT is logged when this returns. A signal that was received
    before changes nothing.
    """
    settings: DocumentsSettings = runtime.settings_of("documents")
    folio = await find_folio(runtime, signal)
    if folio is None:
        folio = new_folio(signal, settings)
        signal = signal.but(folio_id=folio.folio_id, execution_id=folio.execution_id)
        _, inserted = await runtime.records.insert([folio, signal])
        folio = await runtime.records.get(Folio, folio.folio_id) or folio
    else:
        signal = signal.but(folio_id=folio.folio_id)
        [inserted] = await runtime.records.insert([signal])
    if folio.announced != folio.execution_id and folio.status in ("", "PENDING"):
        log(runtime, folder_line(settings, folio, "INIT", f"folder {folio.folio_id}: received"))
    return folio.folio_id, inserted.id


async def find_folio(runtime: Runtime, signal: FolderSignal) -> Folio | None:
    """Return the folder of a signal, also if another service made it with an id of its own."""
    ids = [signal.folio_id, origin.folio_id(signal.bucket, signal.folder_prefix)]
    found = [folio for folio in await runtime.records.get_many(Folio, ids) if folio is not None]
    if found:
        return found[0]
    place = {"bucket": signal.bucket, "folder_prefix": signal.folder_prefix}
    return await runtime.records.first(Folio, place)


def new_folio(signal: FolderSignal, settings: DocumentsSettings) -> Folio:
    """Return the folder that a signal opens."""
    id = signal.folio_id
    if settings.take_over != "off":
        id = origin.folio_id(signal.bucket, signal.folder_prefix)
    return Folio(
        id=id,
        folio_id=id,
        bucket=signal.bucket,
        folder_prefix=signal.folder_prefix,
        execution_id=secrets.token_hex(8),
        eventarc_event_id=signal.eventarc_event_id,
    )


def log(runtime: Runtime, line: LogLine) -> None:
    """Write a line to the log outside an attempt."""
    runtime.engine.telemetry.event(line.level, line.message, **line.fields)
