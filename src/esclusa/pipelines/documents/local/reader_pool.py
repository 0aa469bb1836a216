"""A pool of child processes that read PDFs.

PDFs are untrusted and PDF libraries are written in C, so each document is read in a process that
can die without harm, and that can use only so much memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress
from typing import Any

from esclusa import Failure, Permanent, Text
from esclusa.pipelines.documents.local.worker_process import LENGTH, OUT_OF_MEMORY, message

# Documents that one process reads before it is replaced: this bounds memory leaks.
MAX_DOCUMENTS = 500
# How a process ends that gets no more memory: pdfium aborts, the dynamic loader exits with 127.
_OUT_OF_MEMORY = (-signal.SIGABRT, 127, OUT_OF_MEMORY)


class ReaderPool:
    """Up to ``size`` processes of ``memory`` megabytes.

    Each is started on demand and reads one document at a time.
    """

    def __init__(self, size: int, memory: int) -> None:
        self._free = asyncio.LifoQueue[_ReaderProcess]()
        for _ in range(size):
            self._free.put_nowait(_ReaderProcess(memory))
        self._size = size

    async def read(
        self,
        content: bytes,
        doc_type: str | None = None,
        ocr: str | None = None,
        words: dict[int, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the answer of ``read_document``; raises as ``request`` does.

        ``ocr`` are the languages of tesseract; ``words`` are those that another program recognised
        on pages that are pictures. With neither, pictures are not read.
        """
        job = {"do": "read", "doc_type": doc_type, "ocr": ocr, "words": words}
        answer, _ = await self.request(job, content)
        return answer

    async def request(self, job: dict[str, Any], content: bytes) -> tuple[dict[str, Any], bytes]:
        """Return what a process answers to a job (see ``worker_process``).

        Raises Permanent for a document that is unreadable or needs too much memory, Failure if the
        process died otherwise. When cancelled, the process is killed with its document.
        """
        reader = await self._free.get()
        try:
            answer, body = await reader.request(job, content)
        finally:
            self._free.put_nowait(reader)
        if "error" in answer:
            why = Text(answer["message"], **answer["values"])
            raise Permanent(why, type=answer["error"])
        return answer, body

    async def close(self) -> None:
        for _ in range(self._size):
            await (await self._free.get()).stop()


class _OutOfMemory(Exception):
    """The process died because it may not have as much memory as it needs."""


class _ReaderProcess:
    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._process: asyncio.subprocess.Process | None = None
        self._killed: list[asyncio.subprocess.Process] = []
        self._count = 0

    async def request(self, job: dict[str, Any], content: bytes) -> tuple[dict[str, Any], bytes]:
        if self._count >= MAX_DOCUMENTS:
            await self.stop()
        # A used process may hold memory of earlier documents: only a new one is a fair judge.
        for used in (self._process is not None, False):
            try:
                return await self._try(job, content)
            except _OutOfMemory:
                if not used:
                    break
        raise Permanent(
            Text(
                "reading it takes more than {size} MB of memory, the limit of"
                " DOCUMENTS_LOCAL_MEMORY_MB",
                size=self._memory,
            ),
            type="out_of_memory",
        )

    async def _try(self, job: dict[str, Any], content: bytes) -> tuple[dict[str, Any], bytes]:
        process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        self._count += 1
        try:
            process.stdin.write(message(json.dumps(job).encode()) + LENGTH.pack(len(content)))
            process.stdin.write(content)
            await process.stdin.drain()
            answer: dict[str, Any] = json.loads(await self._read_message(process.stdout))
            body = await self._read_message(process.stdout)
        except (asyncio.IncompleteReadError, ConnectionError):
            await self.stop()
            if process.returncode in _OUT_OF_MEMORY:
                raise _OutOfMemory from None
            code = process.returncode or 0
            how = signal.strsignal(-code) if code < 0 else f"exit code {code}"
            raise Failure(
                Text("the process that read the document died ({how})", how=how),
                type="reader_died",
            ) from None
        except BaseException:  # cancelled: do not finish a document that nobody waits for
            self._kill()
            raise
        return answer, body

    async def _start(self) -> asyncio.subprocess.Process:
        await self._reap()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "esclusa.pipelines.documents.local.worker_process",
            str(self._memory),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._count = 0
        return self._process

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            # With the programs that it runs: it leads a session of its own.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._killed.append(self._process)
        self._process = None

    async def _reap(self) -> None:
        """Wait for processes that were killed in a cancelled task, which could not wait."""
        while self._killed:
            await self._killed[-1].wait()
            self._killed.pop()

    async def stop(self) -> None:
        await self._reap()
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(2):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def _read_message(self, source: asyncio.StreamReader) -> bytes:
        """Return what the process answers: no more than it can have in its memory."""
        length: int = LENGTH.unpack(await source.readexactly(LENGTH.size))[0]
        if length > self._memory << 20:
            raise ConnectionError(f"an answer of {length:,} bytes")
        return await source.readexactly(length)
