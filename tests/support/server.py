"""What the servers that tests start have in common."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Server:
    """A server that runs within a ``with`` block."""

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
