"""The group ``esclusa documents``: process a folder, watch a directory, read progress from logs."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from esclusa import NotFound, one_of
from esclusa.cli import Group, Session, as_json, stop_on_signals
from esclusa.pipelines.documents.buckets import BadUri
from esclusa.pipelines.documents.folder_signals import from_command, from_flags, receive
from esclusa.pipelines.documents.progress import Progress
from esclusa.pipelines.documents.records import FOLDER_ENDED, FolderSignal, Folio
from esclusa.pipelines.documents.remap import remap_documents, reprocess_counts
from esclusa.pipelines.documents.settings import DocumentsSettings

if TYPE_CHECKING:
    from esclusa import Runtime

_CODES = {"ok": 0, "partial": 5}
CYCLE = "documents.process"


@click.group(cls=Group)
def group() -> None:
    """Ready folders of financial PDFs, turned into traceable numbers."""


@group.command()
@click.argument("uri")
@click.option(
    "--reprocess",
    is_flag=True,
    help="Also process a finished folder: its new and failed documents.",
)
@click.option("--force", is_flag=True, help="Reprocess unchanged documents too.")
@click.option(
    "--unread",
    is_flag=True,
    help="Reprocess also documents that the service before this one called DONE without reading "
    "them.",
)
@click.pass_obj
def process(session: Session, uri: str, reprocess: bool, force: bool, unread: bool) -> int:
    """Process the folder URI to its end.

    URI is gs://bucket/folder or file:///parent/folder. Exit code 5 if documents ended in error.
    """
    try:
        folder_signal = from_command(uri, reprocess=reprocess, force=force, unread=unread)
    except BadUri as error:
        raise click.UsageError(str(error)) from None

    async def do(runtime: Runtime) -> dict[str, Any]:
        async with runtime.engine.running() as engine:
            stop_on_signals(session, engine)
            folio_id, signal_id = await receive(runtime, folder_signal)
            if reprocess or unread:
                for line in await reprocess_counts(runtime, folio_id):
                    session.note(line)
            params = {"folio_id": folio_id, "signal": signal_id}
            return (await runtime.operations(session.who).run(CYCLE, params=params)).answer()

    # A person at a terminal reads the answer instead of the log.
    if sys.stderr.isatty() and "log_level" not in session.settings.sources:
        session.settings = session.settings.model_copy(update={"log_level": "warning"})
    answer = session.work(do)
    counted = ", ".join(f"{name} {count:,}" for name, count in answer["counters"].items())
    session.show(answer, lambda screen: screen.line(f"{answer['message']} ({counted})"))
    return _CODES.get(answer["outcome"], 1)


@group.command()
@click.argument("uri")
@click.pass_obj
def remap(session: Session, uri: str) -> int:
    """Map the stored answers of Document AI about the folder URI anew, without a call.

    For another DOCUMENTAI_FIELDS, or another version of Esclusa. Documents without stored answers
    stay as they are.
    """

    async def do(runtime: Runtime) -> dict[str, Any]:
        async with runtime.engine.running() as engine:
            stop_on_signals(session, engine)
            counts = await remap_documents(runtime, session.who, uri)
            answer = (await runtime.operations(session.who).run(CYCLE)).answer()
            return answer | {"counters": counts}

    try:
        answer = session.work(do)
    except BadUri as error:
        raise click.UsageError(str(error)) from None
    counted = ", ".join(f"{name} {count:,}" for name, count in answer["counters"].items())
    session.show(answer, lambda screen: screen.line(counted))
    return _CODES.get(answer["outcome"], 1)


@group.command()
@click.argument(
    "folder",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    metavar="DIR",
)
@click.option(
    "--every",
    type=click.FloatRange(min=0.05),
    default=2.0,
    show_default=True,
    help="Seconds between checks.",
)
@click.option("--once", is_flag=True, help="Process the folders that are ready now, then exit.")
@click.pass_obj
def watch(session: Session, folder: Path, every: float, once: bool) -> int:
    """Process every folder below DIR with an empty file is_ready, until Ctrl-C."""

    async def unfinished(runtime: Runtime) -> bool:
        open_states = one_of(*(s for s in Folio.lifecycle.states if s not in FOLDER_ENDED))
        return bool(
            await runtime.records.first(FolderSignal, {"status": "received"})
            or await runtime.records.first(Folio, {"status": open_states})
        )

    async def do(runtime: Runtime) -> int:
        async with runtime.engine.running() as engine:
            stopping = stop_on_signals(session, engine)
            settings: DocumentsSettings = runtime.settings_of("documents")
            outcomes: set[str] = set()
            received: set[str] = set()
            while not stopping.is_set():
                for signal in await asyncio.to_thread(from_flags, folder, settings.flag):
                    if signal.signal_key not in received:
                        await receive(runtime, signal)
                        received.add(signal.signal_key)
                if await unfinished(runtime):
                    outcomes.add((await engine.run_cycle(CYCLE)).outcome)
                elif once:
                    break
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), every)
            return max((_CODES.get(outcome, 1) for outcome in outcomes), default=0) if once else 0

    session.note(f"watching {folder}")
    return session.work(do)


@group.command()
@click.argument("folder")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "xlsx", "parquet", "json"]),
    help="The format. Default: that of the file's name, or csv.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write. Default: FOLDER.FORMAT in the current folder; - is stdout.",
)
@click.pass_obj
def export(session: Session, folder: str, form: Any, output: Path | None) -> int:
    """Write the numbers of FOLDER to a file, one row each, and its statements as tables.

    FOLDER is the id of a folder, or gs://bucket/folder or file:///parent/folder. The statements are
    sheets of their own in xlsx, and lists in json.
    """
    from esclusa.pipelines.documents.exports import (  # noqa: PLC0415 - only here
        FORMATS,
        encoded,
        write_export,
    )

    try:
        id = from_command(folder).folio_id if "://" in folder else folder
    except BadUri as error:
        raise click.UsageError(str(error)) from None
    named = output.suffix.lower().lstrip(".") if output is not None else ""
    form = form or (named if named in FORMATS else "csv")
    path = output or Path(f"{id}.{form}")

    async def do(runtime: Runtime) -> int:
        if await runtime.records.get(Folio, id) is None:
            raise NotFound(f"there is no folder {id!r}")
        if str(path) == "-":
            if form == "xlsx":
                raise click.UsageError("xlsx is written to a file: name it with --output.")
            async for chunk in encoded(runtime.records, id, form):
                sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            return 0
        part = path.with_name(f".{path.name}.part")
        try:
            await write_export(runtime.records, id, form, part)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return 0

    session.look(do)
    if str(path) != "-":
        session.note(f"written to {path}")
    return 0


@group.command()
@click.argument("log", type=click.File("r", encoding="utf-8", errors="replace"), default="-")
@click.option("--follow", "-f", is_flag=True, help="Print each change as it is read.")
@click.pass_obj
def progress(session: Session, log: Any, follow: bool) -> int:
    """Show the progress of each folder from log lines alone (stdin, or the file LOG)."""

    def show(folder: dict[str, Any]) -> None:
        total = "?" if folder["total_docs"] is None else folder["total_docs"]
        plain = (
            f"{folder['progress_pct']:3d} %  {folder['processed_docs']} of {total}  "
            f"{folder['folio_id']}  {folder['closed'] or ''}"
        )
        click.echo(as_json(folder) if session.json else plain.rstrip())
        sys.stdout.flush()

    reader = Progress()
    for line in log:
        changed = reader.read(line)
        if follow and changed is not None:
            show(changed)
    if not follow:
        for folder in reader.folders:
            show(folder)
    return 0
