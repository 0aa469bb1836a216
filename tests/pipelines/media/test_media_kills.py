"""A worker of ``media`` that is killed: the row is downloaded again, and its attempts are right."""

from __future__ import annotations

from typing import Any

import pytest

from esclusa import To
from esclusa.pipelines.media import app
from esclusa.pipelines.media.records import Publication
from esclusa.testing import Harness


@pytest.mark.parametrize("point", ["before_handler", "after_handler"])
async def test_row_of_a_killed_worker_is_downloaded_again(point: Any) -> None:
    async with Harness(app, context=object()) as h:
        h.answer(To("success", imagen_local="media/1.jpg"), stage="download")
        row = await h.insert(Publication(imagen_url="https://example.org/1.jpg"))
        h.kill(point, stage="download")
        await h.run("download")
        await h.assert_state(row, "downloading", imagen_local=None, attempts=1)
        await h.skip_lease()
        await h.run("download")
        await h.assert_state(row, "success", imagen_local="media/1.jpg", attempts=1)
        assert len(h.calls) == 2


async def test_five_errors_end_in_a_dead_letter_that_can_be_retried() -> None:
    async with Harness(app, context=object()) as h:
        row = await h.insert(Publication(imagen_url="https://example.org/1.jpg"))
        h.fail(TimeoutError("slow"), stage="download", times=5)
        for _ in range(5):
            await h.run("download")
            await h.skip("1h")
        await h.assert_state(row, "error", attempts=5)
        [letter] = await h.dead_letters()
        assert (letter.record_id, letter.error_type) == (row.id, "timeout")
        h.answer(To("success", imagen_local="media/1.jpg"), stage="download")
        await h.retry(row)
        await h.run("download")
        await h.assert_state(row, "success")
        assert await h.dead_letters() == []
