"""``esclusa mcp``: the system for programs that speak the Model Context Protocol."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from esclusa.cli import OK
from esclusa.cli.output import as_json
from esclusa.cli.root import Command
from esclusa.cli.session import Session

if TYPE_CHECKING:
    from esclusa.runtime import Runtime


@click.command(cls=Command)
@click.option(
    "--operate", is_flag=True, help="Allow operations. Without it nothing can be changed."
)
@click.pass_obj
def mcp(session: Session, operate: bool) -> int:
    """Serve status, records, why and dry runs to an MCP client, on stdin and stdout.

    Secrets are masked. With --operate an operation needs a reason and leaves an audit row.
    """

    async def served(runtime: Runtime) -> None:
        from esclusa.cli.mcp_protocol import MAX_MESSAGE, McpServer
        from esclusa.cli.mcp_tools import McpTools

        who = session.who.replace("cli", "mcp", 1)
        server = McpServer(McpTools(runtime, who=who, operate=operate), as_json)
        while line := await asyncio.to_thread(sys.stdin.readline, MAX_MESSAGE + 2):
            answer = await server.answer(line)
            if answer is not None:
                sys.stdout.write(f"{answer}\n")
                sys.stdout.flush()

    session.look(served)
    return OK
