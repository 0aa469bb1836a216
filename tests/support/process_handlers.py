"""Handlers that run in processes of their own, for tests/engine/test_handler_processes.py."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from esclusa import App, Backoff, Failure, Lifecycle, Outcome, Permanent, Record, Retry, To


class Sum(Record, table="sums", key="name"):
    name: str
    upto: int = 0
    total: int | None = None
    seen: int | None = None
    by: int | None = None
    lifecycle = Lifecycle("""
        new -> busy -> done | bad | new
        bad -> new
    """)


class Unsendable(Exception):
    """Its arguments are not what it is built from, so it cannot leave its process as it is."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


app = App("sums")


@app.stage(
    Sum, take="new", hold="busy", exhausted="bad", retry=Backoff(tries=2, base=0), processes=2,
    timeout=20.0,
)  # fmt: skip
def add(each: Sum, at: Any) -> Outcome:
    match each.name:
        case "raises":
            return To("done", total=1 // each.upto)
        case "refused":
            raise Permanent("not this one", type="refused")
        case "unsendable":
            raise Unsendable(1, 2)
        case "dies" if at.number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        case "asks":
            at.wait(at.save(seen=at.number))
            at.log("saved", upto=each.upto)
            at.count("sums", 2, size="small")
            at.wait(at.keep("sums/asks.txt", b"kept"))
            assert at.wait(at.artifacts.get("sums/other.txt")) == b"other"
        case "assigns":
            each.total = 7
            return To("done")
        case "wants":
            at.records.find(Sum)
        case "hangs":
            time.sleep(3600)
        case "retries":
            raise Failure("later", type="busy_line", after=0)
        case "again":
            return Retry("once more")
    return To("done", total=sum(range(each.upto)), by=os.getpid())
