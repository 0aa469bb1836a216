"""Bodies on their way into a store: regrouped into blocks, never held whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import suppress


async def regroup(body: AsyncIterable[bytes], size: int) -> AsyncGenerator[bytes, None]:
    """The same bytes in blocks of at least ``size``, but for the last; an empty body is one empty block.

    Whatever happens, the body is closed in the end, so that a download behind it lets go of its connection.
    """
    held: list[bytes] = []
    have = 0
    given = False
    try:
        async for chunk in body:
            if not isinstance(chunk, bytes | bytearray | memoryview):
                raise TypeError(f"a body yields bytes, not {type(chunk).__name__}")
            held.append(bytes(chunk))
            have += len(held[-1])
            if have >= size:
                block = held[0] if len(held) == 1 else b"".join(held)
                held.clear()
                have = 0
                given = True
                yield block
                del block
        if held or not given:
            yield b"".join(held)
    finally:
        close = getattr(body, "aclose", None)
        if close is not None:
            with suppress(RuntimeError):  # it is running in a task that was cancelled a moment ago
                await close()


def wrong_body(body: object) -> TypeError:
    return TypeError(
        f"an artifact's body is bytes, a Path or an async iterable of bytes, not {type(body).__name__}"
    )
