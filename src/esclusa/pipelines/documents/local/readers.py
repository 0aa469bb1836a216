"""Reader processes: PDFs are strangers' data and PDF libraries are C, so each document is read where nothing else can be hurt."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from esclusa import Failure, Permanent
from esclusa.pipelines.documents.local.child import LENGTH, message

MOST = 500
"""Documents that one process reads before another takes its place: whatever leaks, leaks only so far."""


class Readers:
    """Up to so many processes, started when they are needed, each with one document at a time."""

    def __init__(self, most: int) -> None:
        self._free = asyncio.LifoQueue[_Reader]()
        for _ in range(most):
            self._free.put_nowait(_Reader())
        self._all = most

    async def read(self, content: bytes, doc_type: str | None = None) -> dict[str, Any]:
        """The answer of ``work``. Raises as ``ask`` does."""
        answer, _ = await self.ask({"do": "read", "doc_type": doc_type}, content)
        return answer

    async def ask(self, order: dict[str, Any], content: bytes) -> tuple[dict[str, Any], bytes]:
        """What a process answers to an order (see ``child``). Raises Permanent for a document that cannot be read, Failure if the process
        died over it. Cancelled, the process is ended with its document."""
        reader = await self._free.get()
        try:
            answer, body = await reader.ask(order, content)
        finally:
            self._free.put_nowait(reader)
        if "error" in answer:
            raise Permanent(answer["message"], type=answer["error"])
        return answer, body

    async def close(self) -> None:
        for _ in range(self._all):
            await (await self._free.get()).stop()


class _Reader:
    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._killed: list[asyncio.subprocess.Process] = []
        self._count = 0

    async def ask(self, order: dict[str, Any], content: bytes) -> tuple[dict[str, Any], bytes]:
        if self._count >= MOST:
            await self.stop()
        process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        self._count += 1
        try:
            process.stdin.write(message(json.dumps(order).encode()) + LENGTH.pack(len(content)))
            process.stdin.write(content)
            await process.stdin.drain()
            answer: dict[str, Any] = json.loads(await _message(process.stdout))
            body = await _message(process.stdout)
        except (asyncio.IncompleteReadError, ConnectionError):
            await self.stop()
            raise Failure("the process that read the document died", type="reader_died") from None
        except BaseException:  # cancelled: it would go on with a document that nobody waits for
            self._kill()
            raise
        return answer, body

    async def _start(self) -> asyncio.subprocess.Process:
        await self._see_off()
        command = [sys.executable, "-m", "esclusa.pipelines.documents.local.child"]
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._count = 0
        return self._process

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            self._killed.append(self._process)
        self._process = None

    async def _see_off(self) -> None:
        """Wait for those that were killed while nobody could wait."""
        while self._killed:
            await self._killed[-1].wait()
            self._killed.pop()

    async def stop(self) -> None:
        await self._see_off()
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(2):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def _message(source: asyncio.StreamReader) -> bytes:
    head = await source.readexactly(LENGTH.size)
    return await source.readexactly(LENGTH.unpack(head)[0])
