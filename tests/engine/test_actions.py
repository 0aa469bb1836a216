"""The actions that pipelines declare: what they choose, preview, refuse and write."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel
from support.item_pipeline import Item, pipeline

from esclusa import ActionContext, App, Permanent, RunContext, To
from esclusa.model.errors import BadQuery, DeclarationError, NotFound
from esclusa.model.kind import Ref
from esclusa.model.system_records import Audit


class Params(BaseModel):
    kind: Literal["hard", "soft"] = "soft"


def with_actions() -> App:
    async def refuse(item: Item, at: Any) -> To:
        raise Permanent("refused", type="refused")

    app = pipeline(refuse)

    @app.action(Item, "Try again", es="Intentar otra vez", where={"status": "bad"}, params=Params)
    async def again(item: Item, at: ActionContext) -> To | str:
        """Try refused items again."""
        if item.name == "b" and at.params.kind == "soft":
            return "b is hopeless"
        return To("new", reason="once more")

    @app.cycle(name="sweep")
    async def sweep(run: RunContext) -> None:
        run.count("swept", int(run.params["most"]))

    @app.action(None, "Sweep now")
    async def sweep_now(at: ActionContext) -> str:
        """Sweep ten."""
        run = await at.run("try.sweep", most=10)
        return f"{run.counters['swept']} swept by {at.who}"

    return app


async def test_an_action_previews_applies_and_is_audited(new_engine: Any) -> None:
    engine = await new_engine(with_actions())
    await engine.records.insert([Item(name=name) for name in "abc"])
    await engine.run_cycle("try.work")
    await engine.records.insert([Item(name="d")])
    ana = engine.operations("ana")
    would = await ana.act("try.again", dry_run=True)
    assert (would.matched, would.moved, would.passed) == (
        3,
        0,
        [{"id": "b", "why": "b is hopeless"}],
    )
    refused = await ana.act("try.again", reason="r", seen=2)
    assert (refused.dry_run, refused.moved) == (True, 0)
    done = await ana.act("try.again", ids=["a", "b", "d"], reason="the service is back")
    assert (done.matched, done.moved) == (2, 1)  # d is not bad
    [*_, last] = await engine.store.history(Ref(Item.kind, "a"))
    assert (last.frm, last.to, last.who) == ("bad", "new", "ana")
    assert last.reason == "the service is back"
    audit = await engine.records.first(Audit, {"verb": "again"})
    assert audit is not None
    assert (audit.subject, audit.affected, audit.reason) == ("items", 1, "the service is back")
    hard = await ana.act("try.again", where={"name": "b"}, params={"kind": "hard"}, reason="r")
    assert hard.moved == 1
    swept = await ana.act("try.sweep-now", reason="r")
    assert swept.message == "10 swept by ana"


async def test_what_does_not_fit_an_action_is_refused(new_engine: Any) -> None:
    engine = await new_engine(with_actions())
    ana = engine.operations("ana")
    with pytest.raises(NotFound, match=r"Did you mean try\.again"):
        await ana.act("try.agan")
    with pytest.raises(BadQuery, match="has no parameter knd; it has: kind"):
        await ana.act("try.again", params={"knd": "hard"})
    with pytest.raises(BadQuery, match="kind: Input should be 'hard' or 'soft'"):
        await ana.act("try.again", params={"kind": "harsh"})
    with pytest.raises(BadQuery, match="acts on no record"):
        await ana.act("try.sweep-now", ids=["a"])


def test_an_action_is_checked_where_it_is_declared() -> None:
    app = App("try", records=[Item])

    async def nothing(item: Item, at: Any) -> str:
        return "skipped"

    with pytest.raises(BadQuery, match="nme"):
        app.action(Item, "Do nothing", where={"nme": "a"})(nothing)
    app.action(Item, "Do nothing")(nothing)
    with pytest.raises(DeclarationError, match="two actions are called nothing"):
        app.action(Item, "Do nothing again")(nothing)
