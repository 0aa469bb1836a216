"""``esclusa tenders``: run its cycles, import devices, drop and restore exported rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from esclusa.cli import (
    FAILED,
    OK,
    Group,
    Screen,
    Session,
    output_option,
    print_report,
    run_cycle,
    run_worker,
    write_output,
)
from esclusa.imports import ImportedRow, ImportReport, read_file
from esclusa.pipelines.tenders.archive import ARCHIVED
from esclusa.pipelines.tenders.devices import DeviceBody
from esclusa.pipelines.tenders.installations import register
from esclusa.pipelines.tenders.month_manifest import drop_exported_rows
from esclusa.pipelines.tenders.rates import CurrencyRate, load_rates, parse_rates
from esclusa.pipelines.tenders.restore import TABLES, restore_month
from esclusa.pipelines.tenders.results import FORMATS, ResultFormat, TenderFile
from esclusa.pipelines.tenders.settings import TendersSettings

if TYPE_CHECKING:
    from esclusa import Runtime

BATCH = 500

CYCLES = {
    "ingest": ("ingest", "Find new tenders and write them with their deliveries."),
    "dispatch": ("dispatch", "Send the deliveries that are due."),
    "receipts": ("receipt", "Read the receipts of sent deliveries."),
    "cleanup": ("cleanup", "Move old tenders and deliveries to the archive."),
    "archive-export": ("archive-export", "Write the archive to Parquet files and verify them."),
}


@click.group(cls=Group)
def tenders() -> None:
    """New public tenders become push notifications, once per device."""


def _add_cycle(name: str, cycle: str, summary: str) -> None:
    @tenders.command(
        name, help=f"{summary} Runs on its schedule until stopped; with --once, a single time."
    )
    @click.option("--once", is_flag=True, help="Run once, to its end, and show the result.")
    @click.pass_obj
    def run(session: Session, once: bool) -> int:
        full = f"tenders.{cycle}"
        return run_cycle(session, full) if once else run_worker(session, [full])


for _name, (_cycle, _summary) in CYCLES.items():
    _add_cycle(_name, _cycle, _summary)


@tenders.group(cls=Group)
def devices() -> None:
    """Devices that get notifications."""


@devices.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.pass_obj
def import_(session: Session, file: Path) -> int:
    """Register devices from FILE, one body of POST /devices per line (NDJSON).

    Invalid rows are reported by line number and skipped.
    """

    async def register_file(runtime: Runtime) -> ImportReport:
        report, batch = ImportReport(), list[DeviceBody]()
        for row in read_file(file):
            try:
                batch.append(_read_body(row))
            except ValueError as error:
                report.refuse(row.number, str(error))
            if len(batch) >= BATCH:
                await _put(runtime, batch, report, session.who)
                batch.clear()
        await _put(runtime, batch, report, session.who)
        if count := report.created + report.known:
            await runtime.operations(session.who).note("register", "device_installations", count)
        return report

    answer = session.work(register_file).answer()
    session.show(answer, lambda screen: print_report(screen, answer, "registered again"))
    return FAILED if answer["errors"] else OK


def _read_body(row: ImportedRow) -> DeviceBody:
    """Return the body in a row; ValueError lists all of its faults."""
    if row.values is None:
        raise ValueError(row.fault)
    try:
        return DeviceBody.model_validate(row.values)
    except ValidationError as error:
        raise ValueError(
            "; ".join(
                f"{'.'.join(map(str, e['loc'])) or 'row'}: {e['msg']}"
                for e in error.errors(include_url=False)
            )
        ) from None


async def _put(runtime: Runtime, bodies: list[DeviceBody], report: ImportReport, who: str) -> None:
    """Register a batch. If a device is in it twice, the last body counts."""
    now = await runtime.engine.clock.sync()
    last = {body.installation_id: body for body in bodies}
    report.known += len(bodies) - len(last)
    report.count(await register(runtime, list(last.values()), now, who))


@tenders.command()
@click.pass_obj
def baseline(session: Session) -> int:
    """Register what is listed now without announcing it, before the first ingest."""
    return run_cycle(session, "tenders.ingest", params={"baseline": True})


@tenders.command("drop-exported")
@click.pass_obj
def drop_exported(session: Session) -> int:
    """Delete archived rows whose export is verified and past its drop_eligible_at."""

    async def drop(runtime: Runtime) -> dict[str, int]:
        return {
            record.kind.table: await drop_exported_rows(
                runtime.archiver, runtime.records, record, session.who
            )
            for record, _ in ARCHIVED
        }

    dropped = session.work(drop)
    counts = ", ".join(f"{table}: {count:,} dropped" for table, count in dropped.items())
    session.show({"dropped": dropped}, lambda screen: screen.line(counts))
    return OK


@tenders.command()
@click.argument("month")
@click.option(
    "--table",
    "tables",
    type=click.Choice(TABLES),
    multiple=True,
    help="Only this table. Default: all tables with an archive.",
)
@click.pass_obj
def restore(session: Session, month: str, tables: tuple[str, ...]) -> int:
    """Put the rows of an exported MONTH (2026-03) back into the archive.

    Each file is verified first. Rows that are in the archive stay as they are.
    """

    async def put_back(runtime: Runtime) -> list[dict[str, Any]]:
        return await restore_month(runtime, month, tables, session.who)

    files = session.work(put_back)

    def draw(screen: Screen) -> None:
        rows = [(f["table"], f["path"], f["restored"], f["known"]) for f in files]
        screen.table(["table", "file", ">restored", ">there already"], rows)

    session.show({"files": files}, draw)
    return OK


@tenders.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="ocds",
    show_default=True,
    help="ocds: a release package of OCDS 1.1; otherwise one row per tender.",
)
@click.option("--month", metavar="YYYY-MM", help="Only tenders published in this month (UTC).")
@output_option
@click.pass_obj
def export(session: Session, form: ResultFormat, month: str | None, output: Path | None) -> int:
    """Write the tenders, archived ones included, to a file or to stdout."""

    async def write(runtime: Runtime) -> int:
        file = TenderFile(runtime, form, month)
        await write_output(file, output)
        return file.count

    count = session.look(write)
    if output is not None:
        session.note(f"{count:,} tender{'' if count == 1 else 's'} written to {output}")
    return OK


@tenders.group(cls=Group)
def rates() -> None:
    """What currencies are in pesos, to compare amounts."""


@rates.command("list")
@click.pass_obj
def list_rates(session: Session) -> int:
    """Show the rates that count: those of the table, then those of TENDERS_RATES."""

    async def read(runtime: Runtime) -> list[dict[str, Any]]:
        settings: TendersSettings = runtime.settings_of("tenders")
        kept = {row.id: row async for row in runtime.records.each(CurrencyRate)}
        found = await load_rates(runtime.records, settings.rates)
        return [
            {
                "currency": name,
                "pesos": pesos,
                "updated_at": kept[name].updated_at if name in kept else None,
            }
            for name, pesos in sorted(found.items())
        ]

    items = session.look(read)

    def draw(screen: Screen) -> None:
        lines = [(i["currency"], i["pesos"], i["updated_at"] or "TENDERS_RATES") for i in items]
        screen.table(["currency", ">pesos", "since"], lines, empty="no rates")

    session.show({"items": items}, draw)
    return OK


@rates.command("set")
@click.argument("given", nargs=-1, required=True, metavar="CURRENCY=PESOS...")
@click.pass_obj
def set_rates(session: Session, given: tuple[str, ...]) -> int:
    """Set the pesos of one unit of each CURRENCY: UTM=69542 UF=39485.65. They count at once."""
    try:
        wanted = parse_rates(",".join(given))
    except ValueError as error:
        raise click.UsageError(str(error)) from None

    async def put(runtime: Runtime) -> None:
        rows = [CurrencyRate(currency=name, pesos=pesos) for name, pesos in wanted.items()]
        await runtime.records.put(rows, who=session.who)
        await runtime.operations(session.who).note("set rates", "currency_rates", len(rows))

    session.work(put)
    session.note(f"{len(wanted)} rate{'' if len(wanted) == 1 else 's'} set")
    return OK
