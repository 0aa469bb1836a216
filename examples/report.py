"""A report by cron: every morning, one file with yesterday's sales, by one worker of the cluster.

    export ESCLUSA_PIPELINES=examples/report.py:app
    esclusa run report.daily
    esclusa runs --cycle report.daily

The report is a record itself, so that a day is written once, and a failed one is retried.
"""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from esclusa import (
    App,
    Attempt,
    Backoff,
    Lifecycle,
    Outcome,
    Record,
    RunContext,
    To,
    at_least,
    below,
    cron,
)

ZONE = ZoneInfo("America/Santiago")


class Sale(Record, table="report_sales", key="number", index=[("sold_at",)]):
    number: int
    amount: int
    sold_at: datetime
    lifecycle = Lifecycle("open -> paid")


class Report(Record, table="report_days", key="day"):
    day: date
    total: int | None = None
    file: str | None = None

    lifecycle = Lifecycle("""
        planned -> written | failed
        failed -> planned
    """)


app = App("report", records=[Sale])  # no stage takes sales


@app.cycle(every=cron("30 6 * * *", "America/Santiago"), singleton=True)
async def daily(run: RunContext) -> None:
    yesterday = run.now.astimezone(ZONE).date() - timedelta(days=1)
    await run.records.insert([Report(day=yesterday)])
    await run.drain("write")


@app.stage(Report, take="planned", exhausted="failed", retry=Backoff(tries=5), cycle=False)
async def write(report: Report, at: Attempt) -> Outcome:
    begin = datetime.combine(report.day, datetime.min.time(), ZONE)
    of_the_day = {"sold_at": (at_least(begin), below(begin + timedelta(days=1)))}
    sales = [sale async for sale in at.records.each(Sale, of_the_day)]
    url = await at.keep(f"reports/{report.day}.csv", _csv(sales))
    return To("written", file=url, total=sum(sale.amount for sale in sales))


def _csv(sales: Sequence[Sale]) -> bytes:
    lines = ["number,amount", *(f"{sale.number},{sale.amount}" for sale in sales)]
    return ("\n".join(lines) + "\n").encode()
