"""The tables of docs/reference.md, made from what is declared: settings, commands, exit codes. A test keeps the page up to date."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from esclusa.cli.root import COMMANDS, Command, root
from esclusa.cli.session import Session
from esclusa.model.options import Option, options_of

BEGIN, END = (
    "<!-- made by 'esclusa reference': begin -->",
    "<!-- made by 'esclusa reference': end -->",
)
SHARED = frozenset({"json", "config", "store", "artifacts", "pipelines", "log_level"})


@click.command(cls=Command, hidden=True)
@click.option(
    "--write",
    type=click.Path(dir_okay=False, exists=True),
    metavar="FILE",
    help="Bring the page up to date instead.",
)
@click.pass_obj
def reference(session: Session, write: str | None) -> None:
    """Print the tables of docs/reference.md."""
    made = tables()
    if write is None:
        session.show({"markdown": made}, lambda screen: screen.line(made))
        return
    page = Path(write)
    page.write_text(replaced(page.read_text(encoding="utf-8"), made), encoding="utf-8")


def replaced(page: str, made: str) -> str:
    """The page with the made part renewed."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{made}\n{END}{after}"


def tables() -> str:
    """The made part: settings, then commands."""
    return "\n".join([*_settings(), *_commands()])


def _settings() -> Iterator[str]:
    from esclusa.loading import BUILT_IN, NoPipeline, load_app
    from esclusa.settings import HOUSE_OPTIONS

    yield "## Settings\n"
    yield from _options(HOUSE_OPTIONS, "")
    for name in BUILT_IN:
        try:
            model = load_app(name).settings
        except NoPipeline:
            continue
        yield f"### Settings of the pipeline `{name}`\n"
        yield from _options(options_of(model, name), f"{name}.")


def _options(options: Iterable[Option], prefix: str) -> Iterator[str]:
    rows = (
        [
            " or ".join(f"`{n}`" for n in o.env),
            f"`{prefix}{o.field}`",
            o.allowed,
            _default(o),
            _help(o),
        ]
        for o in options
    )
    yield from _table(["environment", "esclusa.toml", "allowed", "default", "what for"], rows)


def _help(opt: Option) -> str:
    return opt.help + (" Secret." if opt.secret else "")


def _default(opt: Option) -> str:
    if opt.required:
        return "needed"
    if opt.default in (None, ()):
        return "none"
    return f"`{str(opt.default).lower() if isinstance(opt.default, bool) else opt.default}`"


def _commands() -> Iterator[str]:
    ctx = click.Context(root, info_name="esclusa")
    yield "## Commands\n"
    yield from _table(["command", "does"], ([f"`{usage}`", text] for usage, text, _ in _walk(ctx)))
    yield "### Their options\n"
    rows = [
        [f"`{_bare(usage)}`", f"`{o.opts[0]}`", _of(o)]
        for usage, _, options in _walk(ctx)
        for o in options
    ]
    yield from _table(["command", "option", "does"], rows)


def _bare(usage: str) -> str:
    return " ".join(word for word in usage.split() if word.islower() and word[0].isalpha())


def _walk(ctx: click.Context) -> Iterator[tuple[str, str, list[click.Option]]]:
    for name in COMMANDS:
        command = root.get_command(ctx, name)
        assert command is not None
        if command.hidden:
            continue
        yield _line(command, f"esclusa {name}")
        if isinstance(command, click.Group):
            for below, each in command.commands.items():
                yield _line(each, f"esclusa {name} {below}")


def _line(command: click.Command, path: str) -> tuple[str, str, list[click.Option]]:
    ctx = click.Context(command)
    arguments = " ".join(
        p.make_metavar(ctx) for p in command.params if isinstance(p, click.Argument)
    )
    options = [
        p
        for p in command.params
        if isinstance(p, click.Option) and p.name not in SHARED and not p.hidden
    ]
    text = " ".join((command.help or "").split("\n\n")[0].split())
    return f"{path} {arguments}".strip(), text, options


def _of(opt: click.Option) -> str:
    default: Any = opt.default if opt.show_default else None
    return f"{opt.help or ''}{f' ({default})' if default is not None else ''}".strip()


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""
