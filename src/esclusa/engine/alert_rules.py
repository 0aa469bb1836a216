"""Rules for alerts: the declared thresholds, what operators changed, and what is muted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal

from esclusa.engine.clock import StoreClock
from esclusa.engine.options import Options
from esclusa.engine.records import Records
from esclusa.engine.registry import SYSTEM, Registry
from esclusa.model import duration
from esclusa.model.budget import Budget
from esclusa.model.errors import BadQuery
from esclusa.model.names import unknown
from esclusa.model.stage import Cycle, Stage
from esclusa.model.stage_options import FromSetting
from esclusa.model.system_records import AlertRule
from esclusa.model.texts import text
from esclusa.model.value import value

# The subject of a row that counts for everything that has none of its own.
ALL = "*"
# Seconds between two reads of what operators changed, and where reads are paid for.
READ, READ_METERED = 3.0, 60.0
# The most rows that are read.
MOST = 1000
# The longest silence that is judged, in seconds: rates are kept for 14 days.
LONGEST_SILENCE = 10 * 86400.0


@value
class Rule:
    """A rule: its alert's name, the unit of its threshold, and what has a threshold of its own."""

    name: str
    unit: Literal["seconds", "share", "count"]
    subjects: Literal["stage", "cycle", "budget", "table", ""]
    setting: str


RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("backlog", "seconds", "stage", "ESCLUSA_ALERT_BACKLOG_SECONDS"),
        Rule("error_rate", "share", "cycle", "ESCLUSA_ALERT_ERROR_RATE"),
        Rule("silence", "seconds", "stage", "ESCLUSA_ALERT_SILENCE_SECONDS"),
        Rule("budget_early", "share", "budget", "ESCLUSA_ALERT_BUDGET_SHARE"),
        Rule("no_worker", "seconds", "", "ESCLUSA_ALERT_NO_WORKER_SECONDS"),
        Rule("dead_letters", "count", "table", "ESCLUSA_ALERT_DEAD_LETTERS"),
    )
}


def rule_named(name: str) -> Rule:
    """The rule of this name. Raises BadQuery."""
    if name not in RULES:
        raise BadQuery(unknown("no_rule", name, RULES, rule=name))
    return RULES[name]


class AlertRules:
    """The thresholds that count now, and what is muted.

    A change is in the store, so that it counts in all processes and after a restart; each process
    reads it every few seconds. What an operator set for one subject counts before what its pipeline
    declares, and that before what was set for all, and before the setting.
    """

    def __init__(self, records: Records, clock: StoreClock, options: Options) -> None:
        self._records = records
        self._clock = clock
        self._settings: dict[str, float | None] = {
            "backlog": options.alert_backlog,
            "error_rate": options.alert_rate,
            "silence": options.alert_silence,
            "budget_early": options.alert_budget,
            "no_worker": options.alert_no_worker,
            "dead_letters": options.alert_dead_letters,
        }
        self._rows: dict[tuple[str, str], AlertRule] = {}
        # Called when a refresh found a change.
        self.on_change: Callable[[], None] = lambda: None

    async def refresh(self) -> None:
        """Read what operators changed. Raises StoreUnavailable."""
        page = await self._records.find(AlertRule, limit=MOST)
        rows = {(row.rule, row.subject): row for row in page.items}
        changed = rows != self._rows
        self._rows = rows
        if changed:
            self.on_change()

    # thresholds; None: no alert

    def backlog(self, stage: Stage) -> float | None:
        return self._threshold("backlog", stage.name, stage.alert_backlog) or None

    def silence(self, stage: Stage) -> float | None:
        return self._threshold("silence", stage.name, stage.alert_silence) or None

    def error_rate(self, cycle: Cycle) -> float | None:
        return self._threshold("error_rate", cycle.name, cycle.alert_rate)

    def budget(self, budget: Budget, stages: Sequence[Stage]) -> float | None:
        """The lowest threshold of the stages that use the budget, unless it was changed."""
        return self._threshold("budget_early", budget.name, self._declared(budget, stages))

    def no_worker(self) -> float | None:
        return self._threshold("no_worker", ALL, "setting") or None

    def dead_letters(self, table: str) -> int | None:
        count = self._threshold("dead_letters", table, "setting")
        return int(count) if count else None

    def shortest_wait(self, stages: Sequence[Stage]) -> float | None:
        """The shortest time after which one of these alerts can begin."""
        limits = [self.no_worker(), *map(self.backlog, stages), *map(self.silence, stages)]
        return min((limit for limit in limits if limit), default=None)

    def _threshold(
        self, rule: str, subject: str, declared: float | FromSetting | None
    ) -> float | None:
        if (row := self._changed(rule, subject)) is not None:
            return row.threshold
        return self._default(rule) if declared == "setting" else declared

    def _default(self, rule: str) -> float | None:
        row = self._changed(rule, ALL)
        return self._settings[rule] if row is None else row.threshold

    def _changed(self, rule: str, subject: str) -> AlertRule | None:
        row = self._rows.get((rule, subject))
        return None if row is None or row.changed_at is None else row

    def _declared(self, budget: Budget, stages: Sequence[Stage]) -> float | FromSetting | None:
        given = [stage.alert_budget for stage in stages if stage.budget == budget]
        own = [self._default("budget_early") if each == "setting" else each for each in given]
        if not own or all(each == "setting" for each in given):
            return "setting"
        return min((share for share in own if share is not None), default=None)

    # mutes

    def mute(self, name: str, subject: str) -> AlertRule | None:
        """The row that mutes an alert now, if there is one.

        The alert of a budget's window is muted with the budget.
        """
        for each in (subject, subject.partition("/")[0], ALL):
            row = self._rows.get((name, each))
            if row is not None and row.muted_until and row.muted_until > self._clock.now():
                return row
        return None

    def muted(self, name: str, subject: str) -> bool:
        """Whether the alert is not posted now."""
        return self.mute(name, subject) is not None

    def mutes(self) -> list[AlertRule]:
        """Every row that mutes something now."""
        now = self._clock.now()
        return [row for row in self._rows.values() if row.muted_until and row.muted_until > now]

    # for readers

    def listed(self, registry: Registry) -> Iterator[dict[str, Any]]:
        """Every rule, first for all and then for each subject, with the threshold that counts.

        ``declared``: the threshold without a change; ``source``: ``code``, ``setting``, or ``all``
        if it is the one that was set for all.
        """
        for rule in RULES.values():
            yield self._shape(rule, ALL, "setting", registry)
            for subject, declared in self.subjects(rule, registry):
                yield self._shape(rule, subject, declared, registry)

    def subjects(
        self, rule: Rule, registry: Registry
    ) -> Iterator[tuple[str, float | FromSetting | None]]:
        """What may have a threshold of its own, and what is declared for it."""
        stages = [s for s in registry.all_stages if not s.name.startswith(SYSTEM)]
        if rule.name == "backlog":
            yield from ((stage.name, stage.alert_backlog) for stage in stages)
        elif rule.name == "silence":
            yield from ((stage.name, stage.alert_silence) for stage in stages)
        elif rule.name == "error_rate":
            cycles = registry.cycles.values()
            yield from ((c.name, c.alert_rate) for c in cycles if not c.name.startswith(SYSTEM))
        elif rule.name == "budget_early":
            budgets = {b.name: b for plan in registry.plans for b in plan.budgets}
            yield from ((b.name, self._declared(b, stages)) for b in budgets.values())
        elif rule.name == "dead_letters":
            tables = dict.fromkeys(stage.kind.table for stage in stages if stage.exhausted)
            yield from ((table, "setting") for table in tables)

    def _shape(
        self, rule: Rule, subject: str, declared: float | FromSetting | None, registry: Registry
    ) -> dict[str, Any]:
        row, own = self._rows.get((rule.name, subject)), self._changed(rule.name, subject)
        general = None if subject == ALL else self._changed(rule.name, ALL)
        source = "code" if declared != "setting" else "setting" if general is None else "all"
        if subject == ALL:
            without = self._settings[rule.name]
        else:
            without = self._default(rule.name) if declared == "setting" else declared
        return {
            "rule": rule.name,
            "subject": subject,
            "unit": rule.unit,
            "setting": rule.setting,
            "declared": in_force(rule, without),
            "source": source,
            "threshold": in_force(rule, without if own is None else own.threshold),
            "changed": None
            if own is None
            else {"by": own.changed_by, "at": own.changed_at, "reason": own.change_reason or ""},
            "mute": mute_shape(row, self._clock.now()),
        }


def in_force(rule: Rule, threshold: float | None) -> float | None:
    """The threshold, or None if no alert can begin with it."""
    if threshold is None or (rule.unit != "share" and not threshold):
        return None
    never = threshold >= 1 if rule.name == "error_rate" else threshold > 1
    return None if rule.unit == "share" and never else threshold


def mute_shape(row: AlertRule | None, now: datetime) -> dict[str, Any] | None:
    """Until when, by whom and why something is muted; None if it is not."""
    if row is None or row.muted_until is None or row.muted_until <= now:
        return None
    return {
        "rule": row.rule,
        "subject": row.subject,
        "until": row.muted_until,
        "by": row.muted_by,
        "at": row.muted_at,
        "note": row.mute_note or "",
    }


def checked_threshold(rule: Rule, given: float | None) -> float | None:
    """A threshold that may be stored; None and 0: no alert. Raises BadQuery."""
    limits = {
        "seconds": LONGEST_SILENCE if rule.name == "silence" else 366 * 86400.0,
        "share": 1.0,
        "count": 1_000_000.0,
    }
    most = limits[rule.unit]
    if given is None:
        return None
    if not 0 <= given <= most or (rule.unit == "count" and given != int(given)):
        raise BadQuery(text("bad_threshold", rule=rule.name, unit=rule.unit, most=most))
    return in_force(rule, given)


def read_threshold(given: float | str | None) -> float | None:
    """A threshold as people write it: ``2h``, ``20%``, ``off``. Raises BadQuery."""
    written = given.strip().lower() if isinstance(given, str) else given
    if written in (None, "", "off", "none"):
        return None
    try:
        if not isinstance(written, str):
            return float(written)
        if written.endswith("%"):
            return float(written[:-1]) / 100
        return duration.seconds(written)
    except ValueError:
        raise BadQuery(text("no_threshold", given=given)) from None


def written_threshold(unit: str, threshold: float | None) -> str:
    """A threshold as people write it; the contrary of ``read_threshold``."""
    if threshold is None:
        return "off"
    if unit == "seconds":
        return duration.words(threshold)
    return f"{threshold * 100:g}%" if unit == "share" else f"{threshold:g}"
