"""The files and commands of a page of docs/, so that a test can follow it."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?:--|#) (\w+\.\w+)\n")


class Page:
    """One page of docs/."""

    def __init__(self, name: str) -> None:
        self.text = (DOCS / name).read_text(encoding="utf-8")
        self._blocks = _BLOCK.findall(self.text)

    def files(self) -> dict[str, str]:
        """The blocks whose first line is a comment with the name of a file."""
        bodies = [body for _, body in self._blocks]
        return {found[1]: body for body in bodies if (found := _FILE.match(body))}

    def commands(self) -> list[tuple[str, list[str]]]:
        """Each command of the blocks ``console``, with the lines of output that the page shows."""
        commands: list[tuple[str, list[str]]] = []
        for language, body in self._blocks:
            for line in body.splitlines() if language == "console" else ():
                if line.startswith("$ "):
                    commands.append((line[2:], []))
                else:
                    commands[-1][1].append(line)
        return commands


def pattern(lines: list[str]) -> str:
    """The output that the lines stand for: ``…`` is any text, also of several lines."""
    return "".join(
        r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\s*\n"
        for line in lines
    )
