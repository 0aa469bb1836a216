"""The result of a run of the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class CommandResult:
    """The exit code and the output of one run."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


RunCommand = Callable[..., CommandResult]
"""Runs the command with these arguments, in this process."""
