"""Two stages share one credential: a search costs 5 units, the details of a hit cost 1.

    export ESCLUSA_PIPELINES=examples/shared_budget.py:app
    esclusa worker

A claim reserves `cost` units for each record; a handler that used fewer gives the rest back.
"""

from esclusa import App, Attempt, Backoff, Budget, Create, Lifecycle, Outcome, Record, To, Window


class Search(Record, table="budget_searches", key="words"):
    words: str
    lifecycle = Lifecycle("new -> done")


class Hit(Record, table="budget_hits", key="url"):
    url: str
    title: str | None = None
    lifecycle = Lifecycle("new -> done")


app = App("search")
units = Budget("search-api", Window("hour", 100, "UTC"))


@app.stage(Search, take="new", budget=units, cost=5, retry=Backoff(tries=None))
async def search(search: Search, at: Attempt) -> Outcome:
    found = [] if search.words == "nothing" else [f"https://example.com/{search.words}"]
    if not found:
        await at.refund()  # the provider does not charge for an empty answer
    return To("done", also=[Create(Hit(url=url)) for url in found])


@app.stage(Hit, take="new", budget=units, cost=1, retry=Backoff(tries=None))
async def details(hit: Hit, at: Attempt) -> Outcome:
    return To("done", title=hit.url.rpartition("/")[2])
