"""Files of a run: lines of JSON that are saved in parts while the run goes on."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from esclusa.model.errors import ArtifactError

# Seconds until the first part of a run is saved, and the most between two parts: the pause
# doubles, so that a long run has few parts and a run that is killed early leaves its lines.
FIRST_PART, LONGEST_PART = 0.5, 60.0
# Bytes after which a part is saved before its time.
PART_BYTES = 1 << 20
# As ``json.dumps`` does it, which makes an encoder for every call.
_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode
# Characters of a run's id that a file name does without.
_UNSAFE = re.compile(r"[^\w.-]", re.ASCII)


class RunOfFiles(Protocol):
    """What the files need of a run."""

    id: str
    files: list[str]

    @property
    def folder(self) -> str: ...

    @property
    def artifacts(self) -> Any: ...

    def log(self, message: str, /, *, level: str = "info", **fields: Any) -> None: ...

    def end(self, outcome: Any, message: str | None = None) -> None: ...


class RunFiles:
    """Named files of one run: ``async with run.lines("bad") as files: files.add("bad", {…})``.

    A file is a sequence of artifacts, ``{folder}/{run}.{part}.{name}.ndjson``, which ``run.files``
    and the run's answer list. A worker that is killed loses the lines of the last part only. A
    part that cannot be saved ends the run as ``partial``, and its lines go to the next part.
    """

    def __init__(self, run: RunOfFiles, names: tuple[str, ...]) -> None:
        self._run = run
        self._lines: dict[str, list[bytes]] = {name: [] for name in names}
        self._parts = dict.fromkeys(names, 0)
        self._bytes = 0
        self._full = asyncio.Event()
        self._saving = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> RunFiles:
        self._task = asyncio.create_task(self._save_often(), name=f"files of {self._run.id}")
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self.save()

    def add(self, name: str, line: Mapping[str, Any]) -> None:
        """Add a line to a file. It is saved soon, and at the latest when the run ends."""
        raw = _encode(line).encode("utf-8", "replace") + b"\n"
        self._lines[name].append(raw)
        self._bytes += len(raw)
        if self._bytes >= PART_BYTES:
            self._full.set()

    async def save(self) -> None:
        """Save the lines that were added since the last part."""
        async with self._saving:
            for name, lines in self._lines.items():
                if lines:
                    await self._save_part(name, list(lines))
            self._full.clear()

    async def _save_part(self, name: str, lines: list[bytes]) -> None:
        run, body = self._run, b"".join(lines)
        number = self._parts[name] + 1
        stem = f"{run.folder}/{_UNSAFE.sub('_', run.id)}"
        path = f"{stem}.{number:04}.{name}.ndjson"
        try:
            await run.artifacts.put(path, body, content_type="application/x-ndjson")
        except ArtifactError as error:
            run.log(f"the log of the run could not be saved: {error}", level="error")
            run.end("partial", f"its log could not be saved: {error}")
            return
        self._parts[name] = number
        self._bytes -= len(body)
        del self._lines[name][: len(lines)]
        run.files.append(path)

    async def _save_often(self) -> None:
        pause = FIRST_PART
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._full.wait()
            await asyncio.shield(self.save())
            pause = min(LONGEST_PART, 2 * pause)
