"""The command ``esclusa``. Everything heavy is imported late: it starts fast."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

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
    from esclusa.runtime import RuntimeOpener, StoreOpener

OK, FAILED, USAGE, CONFIGURATION, UNHEALTHY, PARTIAL, STOPPED = 0, 1, 2, 3, 4, 5, 130
"""What the command answers to its caller."""


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
