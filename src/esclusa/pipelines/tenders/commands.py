"""The group ``esclusa tenders``: its cycles by name, devices from a file, the drop of what is exported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from esclusa.cli import FAILED, OK
from esclusa.cli.output import print_report
from esclusa.cli.root import Group

if TYPE_CHECKING:
    from esclusa.cli.session import Session
    from esclusa.pipelines.tenders.devices import DeviceBody
    from esclusa.runtime import Runtime

BATCH = 500

CYCLES = {
    "ingest": ("ingest", "Find new tenders and write them with their deliveries."),
    "dispatch": ("dispatch", "Send the deliveries that are due."),
    "receipts": ("receipt", "Ask what became of what was sent."),
    "cleanup": ("cleanup", "Move old tenders and deliveries to the archive."),
    "archive-export": ("archive-export", "Write the archive to Parquet files, and prove them."),
}


@click.group(cls=Group)
def tenders() -> None:
    """New public tenders become push notifications, once per device."""


def _cycle(name: str, cycle: str, told: str) -> None:
    @tenders.command(
        name, help=f"{told} Runs in its slots until stopped; with --once a single time."
    )
    @click.option("--once", is_flag=True, help="Run once, to its end, and answer how it went.")
    @click.pass_context
    def run(ctx: click.Context, once: bool) -> Any:
        from esclusa.cli import work  # noqa: PLC0415 - the command starts fast

        full = f"tenders.{cycle}"
        return (
            ctx.invoke(work.run, cycle=full, limit=None)
            if once
            else ctx.invoke(work.worker, only=(full,))
        )


for _name, (_slug, _told) in CYCLES.items():
    _cycle(_name, _slug, _told)


@tenders.group(cls=Group)
def devices() -> None:
    """Devices that want to be told."""


@devices.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.pass_obj
def import_(session: Session, file: Path) -> int:
    """Register devices from FILE, one body of POST /devices per line (NDJSON). Rows that do not fit are told and passed over."""
    from esclusa.imports import ImportReport  # noqa: PLC0415 - the command starts fast

    async def do(runtime: Runtime) -> ImportReport:
        report, batch = ImportReport(), list[Any]()
        for number, body, fault in _rows(file):
            if fault is not None:
                report.refuse(number, fault)
                continue
            batch.append(body)
            if len(batch) >= BATCH:
                await _put(runtime, batch, report, session.who)
                batch.clear()
        await _put(runtime, batch, report, session.who)
        if report.created or report.known:
            await runtime.operations(session.who).note(
                "register", "device_installations", report.created + report.known
            )
        return report

    report = session.work(do)
    answer = report.answer()

    session.show(answer, lambda screen: print_report(screen, answer, "registered again"))
    return FAILED if answer["errors"] else OK


def _rows(file: Path) -> Iterator[tuple[int, DeviceBody | None, str | None]]:
    """The bodies of a file, each by its row, or the fault that it has."""
    from pydantic import ValidationError  # noqa: PLC0415 - the command starts fast

    from esclusa.imports import read_file  # noqa: PLC0415
    from esclusa.pipelines.tenders.devices import DeviceBody  # noqa: PLC0415

    for row in read_file(file):
        try:
            yield (
                row.number,
                None if row.values is None else DeviceBody.model_validate(row.values),
                row.fault,
            )
        except ValidationError as error:
            faults = [
                f"{'.'.join(map(str, e['loc'])) or 'row'}: {e['msg']}"
                for e in error.errors(include_url=False)
            ]
            yield row.number, None, "; ".join(faults)


async def _put(runtime: Runtime, bodies: list[DeviceBody], report: Any, who: str) -> None:
    """Register a batch; of a device that it names twice the last body counts."""
    now = await runtime.engine.clock.sync()
    last = {body.installation_id: body for body in bodies}
    report.known += len(bodies) - len(last)
    answers = await runtime.engine.records.put(
        [record for body in last.values() for record in body.records(now)], who=who
    )
    report.count(answers[1::2])


@tenders.command("drop-exported")
@click.pass_obj
def drop_exported(session: Session) -> int:
    """Remove archived rows whose export is verified and past its drop_eligible_at."""

    async def do(runtime: Runtime) -> dict[str, int]:
        from esclusa.engine.archiver import Archiver  # noqa: PLC0415 - the command starts fast
        from esclusa.pipelines.tenders.archive import ARCHIVED  # noqa: PLC0415

        archiver = Archiver(runtime.engine)
        return {record.kind.table: await archiver.drop(record.kind) for record, _ in ARCHIVED}

    dropped = session.work(do)
    session.show(
        {"dropped": dropped},
        lambda screen: screen.line(
            ", ".join(f"{table}: {count:,} dropped" for table, count in dropped.items())
        ),
    )
    return OK
