"""Answers that the plugin esclusa.mypy accepts, and those that it refuses."""

from __future__ import annotations

from decimal import Decimal

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from esclusa import App, Attempt, Lifecycle, Outcome, Record, Retry, To, Wait
from esclusa.integrations.sqlalchemy import MappedRecord


class Post(Record, table="posts"):
    text: str = ""
    replies: int | None = None
    lifecycle = Lifecycle("""
        new -> asking -> done
        asking -> new | failed
    """)


class Special(Post, table="special"):
    more: str = ""


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    amount: Mapped[Decimal]
    note: Mapped[str | None]


class OrderRecord(MappedRecord[Order]):
    lifecycle = Lifecycle("new -> done")


app = App("answers")


@app.stage(Post, take="new", hold="asking", exhausted="failed")
async def right(post: Post, at: Attempt) -> Outcome:
    if post.replies is None:
        return Wait("5m", "none yet", text=post.text)
    if post.replies < 0:
        return Retry("negative", after=5, replies=None)
    return To("done", text="x", replies=post.replies, reason="because", also=[])


@app.stage(Post, take="new", hold="asking", exhausted="failed")
async def wrong(post: Post, at: Attempt) -> Outcome:
    if post.replies:
        return To("done", txt="x")  # error: esclusa-field
    if post.text:
        return Wait("5m", "none yet", reply=3)  # error: esclusa-field
    if at.number > 3:
        return Retry("odd", text="x", kind="odd")  # error: esclusa-field
    if at.number > 2:
        return To("doen")  # error: esclusa-move
    return To("asking", text="x")  # error: esclusa-move


@app.stage(Special, take=["new"])
def inherited(post: Special, at: Attempt) -> Outcome:
    if post.more:
        return To("asking", text="x", more="y")
    return To("done", les="y")  # error: esclusa-field


@app.stage(OrderRecord, take="new")
def mapped(order: OrderRecord, at: Attempt) -> Outcome:
    total: Decimal = order.amount
    name: str = order.note  # error: assignment
    if order.amuont:  # error: esclusa-field
        return To("done", note=f"{total} {name}")
    return To("done", nte="x")  # error: esclusa-field


@app.stage(Post, take="new", batch=10)
def batch(posts: list[Post], at: Attempt) -> list[Outcome]:
    return [To("asking", tex=post.text) for post in posts]  # error: esclusa-field
