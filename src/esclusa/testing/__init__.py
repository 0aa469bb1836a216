"""The test kit for pipelines: a worker in the test's own process, on a database that it may shift.

``async with Harness(app) as h:`` or, in plain functions, ``with SyncHarness(app) as h:``.
"""

from esclusa.testing.databases import open_database
from esclusa.testing.faults import HandlerFaults
from esclusa.testing.handlers import Call, Killed, Point
from esclusa.testing.harness import Harness
from esclusa.testing.sync import SyncHarness

__all__ = [
    "Call",
    "HandlerFaults",
    "Harness",
    "Killed",
    "Point",
    "SyncHarness",
    "open_database",
]
