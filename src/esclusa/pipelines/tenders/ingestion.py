"""Ingest: find new tenders and write each with its event and deliveries in one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from functools import partial
from itertools import chain
from typing import Any
from zoneinfo import ZoneInfo

from esclusa import (
    BudgetEmpty,
    Duplicate,
    EsclusaError,
    Inserted,
    Record,
    RecordWithChildren,
    RunContext,
    StoreConflict,
    Text,
)
from esclusa.pipelines.tenders.digest import announce_digests
from esclusa.pipelines.tenders.following import LoadDevices, event_with_deliveries, follow, warn
from esclusa.pipelines.tenders.overlap import overlapping_writes
from esclusa.pipelines.tenders.rates import NO_RATES, Rates, currency_name, in_pesos
from esclusa.pipelines.tenders.records import (
    NEW_TENDER,
    DeviceInstallation,
    Licitacion,
    NotificationPreferences,
    RegistryEntry,
)
from esclusa.pipelines.tenders.settings import CHILE
from esclusa.pipelines.tenders.sources.source import (
    Listing,
    SourceBlocked,
    SourceFailed,
    TenderSource,
)
from esclusa.pipelines.tenders.targeting import DeviceIndex, is_announced
from esclusa.pipelines.tenders.tender_fields import make_tender, merge_fields

# The rows of a source's list, by code.
Rows = dict[str, dict[str, Any]]

# After this many outages in a row, each further detail is requested once, without retries.
MAX_OUTAGES = 3
BATCH = 1000
# A code that is listed and has no detail is requested again after this time.
UNKNOWN_WAIT = timedelta(minutes=30)

# The faults of a source that a message names.
MAX_FAULTS = 3

# The alerts that a source shows nothing that can be read, and that nothing new is found.
SOURCE_UNREADABLE, NO_NEW_TENDERS = "source_unreadable", "no_new_tenders"

# `left`: codes without a detail; the next run requests it again.
COUNTERS = {name: name for name in ("found", "known", "new", "deliveries", "left")}

# Counted by the run that handled all of yesterday's list; later runs of the day skip it.
CAUGHT_UP = "caught_up"


async def register_listed(run: RunContext) -> None:
    """Register the codes that are listed now, without reading or announcing them."""
    sources: list[TenderSource] = run.context.sources
    today = run.now.astimezone(ZoneInfo(CHILE)).date()
    try:
        listings = [await _list_today(run, source, today) for source in sources]
        for source in sources:
            if source.lists_past_days:
                listings.append((await source.list_tenders(run, today - timedelta(days=1))).rows)
            if source.required:
                listings.append((await source.list_open(run)).rows)
    except SourceFailed as error:
        run.end("error", Text("the tenders could not be listed: {why}", why=error))
        return
    except (SourceBlocked, BudgetEmpty) as error:
        run.halt("blocked", error.message)
        return
    codes = list(dict.fromkeys(chain(*listings)))
    run.count("found", len(codes))
    entries = [RegistryEntry(codigo_externo=code, licitacion_id=code) for code in codes]
    for start in range(0, len(entries), BATCH):
        answers = await run.records.insert(entries[start : start + BATCH])
        run.count("known", sum(isinstance(answer, Duplicate) for answer in answers))
        run.count("new", sum(isinstance(answer, Inserted) for answer in answers))


async def ingest(run: RunContext) -> None:
    """List today's tenders, drop the codes in the registry, then read and write the others.

    The first run of a day also reads yesterday's list, for tenders published after the last run or
    left by it.
    """
    if run.params.get("baseline"):
        await register_listed(run)
        return
    sources: list[TenderSource] = run.context.sources
    today = run.now.astimezone(ZoneInfo(CHILE)).date()
    try:
        await run.records.make_partitions(Licitacion)
    except StoreConflict as error:
        warn(run, error.message)
    try:
        listings = [await _list_today(run, source, today) for source in sources]
        late = await _list_yesterday(run, sources, today)
        codes = dict.fromkeys(chain(*listings, *(late or ())))
        run.count("found", len(codes))
        new = await _drop_known(run, codes)
        run.count("known", len(codes) - len(new))
        if late is not None:
            listings = [old | today for old, today in zip(late, listings, strict=True)]
        index: list[DeviceIndex] = []

        async def devices() -> DeviceIndex:
            """Load the devices once in a run, if they are needed."""
            if not index:
                rates = await run.context.rates.load(run.records, run.now)
                index.append(await load_devices(run.records, rates))
            return index[0]

        pairs = list(zip(sources, listings, strict=True))
        left = await _read_and_write(run, new, pairs, devices)
        for source, rows in pairs:
            if source.required and not run.stopping:
                await follow(run, source, rows, devices)
        if late is not None and left.isdisjoint(chain(*late)):
            run.count(CAUGHT_UP)
    except SourceFailed as error:
        run.end("error", Text("today's tenders could not be read: {why}", why=error))
    except (SourceBlocked, BudgetEmpty) as error:
        run.halt("blocked", error.message)
    if not run.settings.baseline:
        await announce_digests(run)
    await judge_silence(run)


async def _list_today(run: RunContext, source: TenderSource, today: date) -> Rows:
    """Return the source's list. What cannot be read of a source that is not required is reported.

    An alert says that somebody has to look at such a source.
    """
    if source.required:
        return (await source.list_tenders(run, today)).rows
    try:
        listing = await source.list_tenders(run, today)
    except Exception as error:  # noqa: BLE001 - an optional source never stops the run
        listing = Listing({}, [f"{type(error).__name__}: {error}"], unreadable=True)
    if listing.faults:
        why = "; ".join(listing.faults[:MAX_FAULTS])
        message = Text("{source} failed: {why}", source=source.name, why=why)
        if (more := len(listing.faults) - MAX_FAULTS) > 0:
            message = Text("{message}; {count} more", message=message, count=more)
        warn(run, message)
        if listing.unreadable:
            await run.alert(SOURCE_UNREADABLE, message)
    if not listing.unreadable:
        await run.end_alert(SOURCE_UNREADABLE)
    return listing.rows


async def _list_yesterday(
    run: RunContext, sources: list[TenderSource], today: date
) -> list[Rows] | None:
    """Return yesterday's lists, one for each source; None if they are not needed or not readable.

    They are not needed if a run of today handled all of them, or if no run was before today.
    """
    midnight = datetime.combine(today, time(), ZoneInfo(CHILE))
    async for earlier in run.earlier(since=midnight):
        if CAUGHT_UP in earlier.counters:
            return None
    first = await anext(run.earlier(), None)
    if first is None or first.started_at >= midnight:
        return None
    try:
        return [
            (await source.list_tenders(run, today - timedelta(days=1))).rows
            if source.lists_past_days
            else {}
            for source in sources
        ]
    except SourceFailed as error:
        warn(run, Text("yesterday's tenders could not be read again: {why}", why=error))
        return None


async def _drop_known(run: RunContext, codes: Iterable[str]) -> list[str]:
    """Return the codes that are not in the registry, before any detail costs a call."""
    listed, new = list(codes), []
    for start in range(0, len(listed), BATCH):
        part = listed[start : start + BATCH]
        entries = await run.records.get_many(RegistryEntry, part)
        new += [code for code, entry in zip(part, entries, strict=True) if entry is None]
    return new


async def _read_and_write(
    run: RunContext,
    codes: list[str],
    listings: list[tuple[TenderSource, Rows]],
    devices: LoadDevices,
) -> set[str]:
    """Read each tender's detail and write the tender; return the codes left for the next run.

    Details are read one after the other. Meanwhile the tenders before are written.
    """
    outages, left, last = 0, set(codes), None
    unpriced: set[str] = set()

    async def write(tender: Licitacion, index: DeviceIndex) -> None:
        await write_tender(run, tender, index)
        left.discard(tender.codigo_externo)
        amount, currency = tender.monto_estimado, tender.moneda
        rates = await run.context.rates.load(run.records, run.now)
        if amount is not None and in_pesos(amount, currency, rates) is None:
            run.count("unpriced")
            unpriced.add(currency_name(currency))

    async with overlapping_writes() as writes:
        for code in codes:
            if run.stopping:
                break
            try:
                tender = await _read_tender(run, code, listings, retry=outages < MAX_OUTAGES)
            except (SourceBlocked, BudgetEmpty):
                raise
            except EsclusaError as error:  # the call failed, or its answer makes no tender
                run.count("left")
                last = Text("{code}: {why}", code=code, why=error)
                message = f"{code} is left for the next run: {error}"
                run.log(message, level="warning", codigo_externo=code)
                outages = outages + 1 if isinstance(error, SourceFailed) and error.outage else 0
                continue
            outages = 0
            await writes.start(partial(write, tender, await devices()))
    if unpriced:
        warn(
            run,
            Text(
                "{count} tenders passed every amount range: no rate is known of {currencies};"
                " set it with: esclusa tenders rates set",
                count=run.counters["unpriced"],
                currencies=", ".join(sorted(unpriced)),
            ),
        )
    if last:
        message = Text(
            "{count} tenders are left for the next run; the last: {why}",
            count=run.counters["left"],
            why=last,
        )
        if outages > MAX_OUTAGES:  # it answers lists and no details
            run.end("error", message)
        else:
            warn(run, message)
    return left


async def _read_tender(
    run: RunContext, code: str, listings: list[tuple[TenderSource, Rows]], *, retry: bool
) -> Licitacion:
    """Return the tender: the detail of the first source that has it, completed from the lists.

    A tender that no source has a detail of is made of the lists, once that is certain.
    """
    unknown: dict[str, datetime] = run.context.unknown
    if code in unknown and run.now < unknown[code]:
        raise SourceFailed(Text("no source has its detail yet"))
    listed = [by.fields(listing[code]) for by, listing in listings if code in listing]
    for source, _ in listings:
        detail = await source.detail(run, code, retry=retry)
        if detail is not None:
            listed.insert(0, source.fields(detail))
            break
    else:
        if code not in unknown:
            unknown[code] = run.now + UNKNOWN_WAIT
            raise SourceFailed(Text("no source has its detail yet"))
        detail = {}
    unknown.pop(code, None)
    return make_tender(
        {**merge_fields(*listed), "codigo_externo": code, "detalle": detail}, run.now
    )


async def judge_silence(run: RunContext) -> None:
    """Begin an alert if no run has found a new tender for TENDERS_SILENCE_HOURS working hours."""
    hours = run.settings.silence_hours
    if run.counters["new"] or not hours:
        await run.end_alert(NO_NEW_TENDERS)
        return
    since = working_hours_before(run.now, hours)
    first = await anext(run.earlier(), None)
    if first is None or first.started_at > since or not is_working_day(run.now):
        return
    async for earlier in run.earlier(since=since):
        if earlier.counters.get("new"):
            await run.end_alert(NO_NEW_TENDERS)
            return
    why = Text("no new tender was found for {hours:g} working hours", hours=hours)
    await run.alert(NO_NEW_TENDERS, why)


def is_working_day(moment: datetime) -> bool:
    """Whether it is Monday to Friday in Chile."""
    return moment.astimezone(ZoneInfo(CHILE)).weekday() < 5


def working_hours_before(moment: datetime, hours: float) -> datetime:
    """Return since when so many hours from 8 to 20 h of working days have passed."""
    step = timedelta(minutes=15)
    while hours > 0:
        moment -= step
        if is_working_day(moment) and 8 <= moment.astimezone(ZoneInfo(CHILE)).hour < 20:
            hours -= step / timedelta(hours=1)
    return moment


async def load_devices(records: Any, rates: Rates = NO_RATES) -> DeviceIndex:
    """Return the index of all devices that messages may be sent to, with their preferences."""
    preferences = {
        row.installation_id: row async for row in records.each(NotificationPreferences, size=5000)
    }
    active = [
        row.installation_id
        async for row in records.each(DeviceInstallation, {"active": True}, size=5000)
        if row.is_reachable
    ]
    return DeviceIndex(((id, preferences.get(id)) for id in active), rates)


async def write_tender(run: RunContext, tender: Licitacion, devices: DeviceIndex) -> None:
    """Claim the code; if it is new, write the tender, its event and its deliveries with it."""
    code = tender.codigo_externo
    children: list[Record | RecordWithChildren] = [tender.but(id=code)]
    if is_announced(tender, run.now) and not run.settings.baseline:
        children.append(event_with_deliveries(NEW_TENDER, code, devices.matching(tender)))
    entry = RegistryEntry(codigo_externo=code, licitacion_id=code)
    [new] = await run.records.insert_if_new([RecordWithChildren(entry, children)])
    if new is None:
        run.count("known")
    else:
        run.count("new")
        run.count("deliveries", new - len(children))
