"""What an operator can do to alerts: change a rule's threshold, reset it, mute and unmute."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from esclusa.engine.alert_rules import ALL, RULES, checked_threshold, rule_named
from esclusa.engine.audited import AuditedOperations
from esclusa.model.errors import BadQuery
from esclusa.model.kind import Ref
from esclusa.model.names import unknown
from esclusa.model.query import query
from esclusa.model.settlement import Duplicate, Settlement
from esclusa.model.system_records import Alert, AlertRule
from esclusa.model.texts import text

# The longest mute.
LONGEST = timedelta(days=366)


class AlertOperations(AuditedOperations):
    """The operations on alerts; see ``esclusa.engine.alert_rules`` for what they change."""

    async def set_alert_rule(
        self, rule: str, subject: str, threshold: float | None, *, reason: str
    ) -> None:
        """Set the threshold of a rule for one subject or for all (``*``); None: no alert."""
        found = rule_named(rule)
        known = [name for name, _ in self._alert_rules.subjects(found, self._registry)]
        if subject != ALL and subject not in known:
            raise BadQuery(unknown("no_rule_subject", subject, known, rule=rule, subject=subject))
        if not reason.strip():
            raise BadQuery(text("rule_needs_reason"))
        given = checked_threshold(found, threshold)
        await self._write(
            rule,
            subject,
            threshold=given,
            changed_at=self._clock.now(),
            changed_by=self.who,
            change_reason=reason,
        )
        shown = "no alert" if given is None else f"{given:g}"
        await self.note("alert rule", rule, 1, {"subject": subject, "threshold": shown}, reason)

    async def reset_alert_rule(self, rule: str, subject: str, *, reason: str = "") -> None:
        """Let the declared threshold count again."""
        rule_named(rule)
        await self._write(
            rule,
            subject,
            threshold=None,
            changed_at=None,
            changed_by=None,
            change_reason=None,
        )
        await self.note("reset alert rule", rule, 1, {"subject": subject}, reason)

    async def mute(self, name: str, subject: str, *, until: datetime, note: str) -> None:
        """Post no alert of this name about this subject (``*``: about any) until then."""
        now = await self._clock.sync()
        if not now < until <= now + LONGEST:
            raise BadQuery(text("mute_needs_end"))
        if not note.strip():
            raise BadQuery(text("mute_needs_note"))
        if not name.strip() or (subject == ALL and not await self._alert_name(name)):
            raise BadQuery(text("no_alert_name", name=name))
        await self._write(
            name, subject or ALL, muted_until=until, muted_at=now, muted_by=self.who, mute_note=note
        )
        shown = until.isoformat(" ", "seconds")
        await self.note("mute", name, 1, {"subject": subject, "until": shown}, note)

    async def unmute(self, name: str, subject: str, *, reason: str = "") -> None:
        """Post these alerts again; one that is open and was never posted is posted now."""
        await self._write(
            name, subject, muted_until=None, muted_at=None, muted_by=None, mute_note=None
        )
        await self.note("unmute", name, 1, {"subject": subject}, reason)

    async def _alert_name(self, name: str) -> bool:
        """Whether there is such a rule, or has been such an alert."""
        if name in RULES:
            return True
        return bool((await self._store.find(query(Alert.kind, {"name": name}, limit=1))).items)

    async def _write(self, rule: str, subject: str, **fields: Any) -> None:
        """Set these fields of the row, which is made if it does not exist."""
        kind = AlertRule.kind
        [answer] = await self._store.insert([AlertRule(rule=rule, subject=subject, **fields)])
        if isinstance(answer, Duplicate):
            ref = Ref(kind, kind.id_of(rule, subject))
            await self._store.settle(
                [Settlement(ref, "kept", ("kept",), None, fields, who=self.who)]
            )
        await self._alert_rules.refresh()
