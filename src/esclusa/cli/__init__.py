"""The command ``esclusa``, and the parts of it that the commands of pipelines use.

Everything heavy is imported late, so that the command starts fast.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from esclusa.model.errors import (
    ArtifactError,
    BadQuery,
    DeclarationError,
    EsclusaError,
    FaultsError,
    MigrationError,
    SchemaError,
    SettingsError,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from esclusa.cli.output import Screen, as_json, print_report
    from esclusa.cli.root import Command, Group
    from esclusa.cli.session import Session
    from esclusa.cli.work import run_cycle, run_worker
    from esclusa.runtime import RuntimeOpener, StoreOpener

__all__ = [
    "CONFIGURATION", "FAILED", "OK", "PARTIAL", "STOPPED", "UNHEALTHY", "USAGE",
    "Command", "Group", "Screen", "Session", "as_json", "print_report", "run", "run_cycle", "run_worker",
]  # fmt: skip

OK, FAILED, USAGE, CONFIGURATION, UNHEALTHY, PARTIAL, STOPPED = 0, 1, 2, 3, 4, 5, 130
"""Exit codes of the command."""

_MODULES = {
    "Command": "root", "Group": "root", "Screen": "output", "Session": "session",
    "as_json": "output", "print_report": "output", "run_cycle": "work", "run_worker": "work",
}  # fmt: skip
"""The module of each public name that is imported when it is first used."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"esclusa.cli.{_MODULES[name]}"), name)


_MANY = 3  # a new store lacks everything; nobody wants to read it all


def run(
    argv: Sequence[str] | None = None, *, open_runtime: RuntimeOpener, open_store: StoreOpener
) -> NoReturn:
    """Run the command and leave the process with its exit code. An error is one clear line (and its faults) on stderr."""
    code = code_of(argv, open_runtime=open_runtime, open_store=open_store)
    gc.freeze()  # the process ends: to look for cycles once more is a sixth of a short command's time
    sys.exit(code)


def code_of(
    argv: Sequence[str] | None = None, *, open_runtime: RuntimeOpener, open_store: StoreOpener
) -> int:
    """Run the command; return its exit code."""
    from esclusa.cli.root import root
    from esclusa.cli.session import Session

    args = None if argv is None else list(argv)
    try:
        code = root.main(
            args, prog_name="esclusa", standalone_mode=False, obj=Session(open_runtime, open_store)
        )
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        return STOPPED
    except EsclusaError as error:
        click.echo(f"esclusa: {_told(error)}", err=True)
        return exit_code(error)
    return code if isinstance(code, int) else OK


def exit_code(error: EsclusaError) -> int:
    """The exit code that an error means."""
    match error:
        case SettingsError() | DeclarationError():
            return CONFIGURATION
        case BadQuery():
            return USAGE
        case StoreUnavailable() | SchemaError() | MigrationError() | ArtifactError():
            return UNHEALTHY
        case _:
            return FAILED


def _told(error: EsclusaError) -> str:
    if isinstance(error, FaultsError) and len(error.faults) == 1:
        return f"{error.what.rstrip(':')}: {error.faults[0]}"
    if isinstance(error, SchemaError) and len(error.faults) > _MANY:
        return str(
            SchemaError(
                error.what, [*error.faults[:_MANY], f"… and {len(error.faults) - _MANY} more"]
            )
        )
    return str(error)
