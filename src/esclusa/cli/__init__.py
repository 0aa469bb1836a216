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
    SchemaBehind,
    SchemaError,
    SchemaRefused,
    SettingsError,
    StartStopped,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from esclusa.cli.export import format_option, output_option, write_rows
    from esclusa.cli.output import Screen, as_json, print_report
    from esclusa.cli.root import Command, Group
    from esclusa.cli.run import run_cycle, run_worker, stop_on_signals
    from esclusa.cli.session import Session
    from esclusa.runtime import RuntimeOpener, StoreOpener

__all__ = [
    "CONFIGURATION",
    "FAILED",
    "OK",
    "PARTIAL",
    "STOPPED",
    "UNHEALTHY",
    "USAGE",
    "Command",
    "Group",
    "Screen",
    "Session",
    "as_json",
    "format_option",
    "main",
    "output_option",
    "print_report",
    "run_cycle",
    "run_worker",
    "stop_on_signals",
    "write_output",
    "write_rows",
]

# Exit codes of the command.
OK, FAILED, USAGE, CONFIGURATION, UNHEALTHY, PARTIAL, STOPPED = 0, 1, 2, 3, 4, 5, 130

# The module of each public name that is imported when it is first used.
_MODULES = {
    "Command": "root", "Group": "root", "Screen": "output", "Session": "session",
    "as_json": "output", "print_report": "output", "run_cycle": "run", "run_worker": "run",
    "stop_on_signals": "run", "format_option": "export", "output_option": "export",
    "write_output": "export", "write_rows": "export",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"esclusa.cli.{_MODULES[name]}"), name)


# A new store lacks everything: this many faults are printed.
_SHOWN_FAULTS = 3


def main(
    argv: Sequence[str] | None = None, *, open_runtime: RuntimeOpener, open_store: StoreOpener
) -> NoReturn:
    """Run the command and exit with its code. An error is printed to stderr without a traceback."""
    code = code_of(argv, open_runtime=open_runtime, open_store=open_store)
    gc.freeze()  # skip the last collection: a sixth of the time of a short command
    sys.exit(code)


def code_of(
    argv: Sequence[str] | None = None, *, open_runtime: RuntimeOpener, open_store: StoreOpener
) -> int:
    """Run the command; return its exit code."""
    from esclusa.cli.root import root
    from esclusa.cli.session import Session

    try:
        code = root.main(
            None if argv is None else list(argv),
            prog_name="esclusa",
            standalone_mode=False,
            obj=Session(open_runtime, open_store),
        )
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Stopped.", err=True)
        return STOPPED
    except EsclusaError as error:
        click.echo(f"esclusa: {_message(error)}", err=True)
        return exit_code(error)
    return code if isinstance(code, int) else OK


def exit_code(error: EsclusaError) -> int:
    """The exit code of an error."""
    match error:
        case SettingsError() | DeclarationError() | SchemaRefused() | SchemaBehind():
            return CONFIGURATION
        case BadQuery():
            return USAGE
        case StartStopped():
            return STOPPED
        case StoreUnavailable() | SchemaError() | MigrationError() | ArtifactError():
            return UNHEALTHY
        case _:
            return FAILED


def _message(error: EsclusaError) -> str:
    if isinstance(error, FaultsError) and len(error.faults) == 1:
        return f"{error.what.rstrip(':')}: {error.faults[0]}"
    if isinstance(error, SchemaBehind) and len(error.faults) > _SHOWN_FAULTS:
        return str(
            SchemaBehind(
                error.what,
                [*error.faults[:_SHOWN_FAULTS], f"… and {len(error.faults) - _SHOWN_FAULTS} more"],
            )
        )
    return str(error)
