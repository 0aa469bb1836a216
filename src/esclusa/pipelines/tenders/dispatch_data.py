"""What a batch of deliveries needs to be checked again and sent."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from esclusa import Attempt, at_least, one_of
from esclusa.pipelines.tenders.messages import MOST_NAMES, Digest
from esclusa.pipelines.tenders.rates import Rates
from esclusa.pipelines.tenders.records import (
    NEW_TENDER,
    Delivery,
    DeviceInstallation,
    Licitacion,
    NotificationEvent,
    NotificationPreferences,
    event_type,
)
from esclusa.pipelines.tenders.settings import CHILE


@dataclass(frozen=True, slots=True)
class DispatchData:
    """The devices, preferences, tenders and types of events of a batch."""

    devices: dict[str, DeviceInstallation | None]
    preferences: dict[str, NotificationPreferences | None]
    tenders: dict[str, Licitacion]
    events: dict[str, NotificationEvent]
    # The messages that devices with a daily cap were sent today.
    sent_today: Counter[str]
    rates: Rates

    def event(self, delivery: Delivery) -> str:
        """The type of its event."""
        found = self.events.get(delivery.notification_event_id)
        return NEW_TENDER if found is None else event_type(found.type)

    def digest(self, delivery: Delivery) -> Digest | None:
        """The tenders of a digest; None if its event is of one tender."""
        found = self.events.get(delivery.notification_event_id)
        if found is None or not found.licitaciones:
            return None
        first = [self.tenders[id] for id in found.licitaciones[:MOST_NAMES] if id in self.tenders]
        names = [tender.nombre or tender.codigo_externo for tender in first]
        return Digest(names, found.licitaciones)

    def tender(self, delivery: Delivery) -> Licitacion | None:
        """The tender of its event, archived or not."""
        found = self.events.get(delivery.notification_event_id)
        return None if found is None else self.tenders.get(found.licitacion_id)


async def load_data(batch: list[Delivery], at: Attempt) -> DispatchData:
    """Read the devices, preferences, events and tenders of a batch."""
    names = list(dict.fromkeys(d.installation_id for d in batch))
    event_ids = list(dict.fromkeys(d.notification_event_id for d in batch))
    events = {e.id: e for e in await at.records.get_many(NotificationEvent, event_ids) if e}
    tender_ids = list(
        dict.fromkeys(
            id
            for event in events.values()
            for id in (event.licitacion_id, *event.licitaciones[:MOST_NAMES])
        )
    )
    tenders = {t.id: t for t in await at.records.get_many(Licitacion, tender_ids) if t is not None}
    if archived := [id for id in tender_ids if id not in tenders]:
        page = await at.records.find(
            Licitacion, {"id": one_of(*archived)}, limit=len(archived), archived=True
        )
        tenders |= {t.id: t for t in page.items}
    devices = dict(zip(names, await at.records.get_many(DeviceInstallation, names), strict=True))
    preferences = dict(
        zip(names, await at.records.get_many(NotificationPreferences, names), strict=True)
    )
    capped = [name for name, given in preferences.items() if given and given.daily_cap]
    sent_today = await _count_sent(capped, at) if capped else Counter[str]()
    rates = await at.context.rates.load(at.records, at.now)
    return DispatchData(devices, preferences, tenders, events, sent_today, rates)


async def _count_sent(names: list[str], at: Attempt) -> Counter[str]:
    """Count the messages of these devices since midnight in Chile, those under way included.

    Processes do not see what others have under way, so that a cap may be passed by that much.
    """
    await at.caught_up()
    day = at.now.astimezone(ZoneInfo(CHILE)).replace(hour=0, minute=0, second=0, microsecond=0)
    where = {"installation_id": one_of(*names), "sent_at": at_least(day)}
    sent = Counter([d.installation_id async for d in at.records.each(Delivery, where, size=1000)])
    sending: Counter[str] = at.context.sending
    return sent + sending
