"""The files: names as other programs gave them, stored shapes, older versions, recollection."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.origin_replies import files_below, save

from esclusa import plain_segment

FULL: dict[str, Any] = {
    "array": [{"id_str": "1"}, {"id_str": "2"}],
    "data": {"data": [{"id_str": "1"}, {"id_str": "2"}]},
    "retry": {"data": [{"id_str": "1"}, {"id_str": "2"}], "_metadata": {"is_retry": True}},
    "object": {"posts": [1], "next": None},
}
EMPTY: dict[str, Any] = {
    "message": {"message": "we cannot locate this job"},
    "error": {"error": "x", "_metadata": {"is_retry": True}},
    "list": [],
    "nothing": {},
    "no data": {"data": []},
    "only metadata": {"_metadata": {"retry_count": 2}},
    "text": "nothing",
}


async def test_all_stored_shapes_are_read(trial: Any) -> None:
    """A file with replies needs no search. An error that was saved is no content, and is kept."""
    await trial.posts(*FULL, *EMPTY)
    for name, content in (FULL | EMPTY).items():
        trial.save(name, content)
    before = files_below(trial.files)
    run = await trial.submit()
    assert (run["counters"]["done"], run["counters"]["submitted"]) == (len(FULL), len(EMPTY))
    assert files_below(trial.files / "raw") == {
        path.removeprefix("raw/"): file for path, file in before.items()
    }
    assert (await trial.check())["counters"]["done"] == len(EMPTY)
    for name, content in EMPTY.items():
        saved = json.loads(trial.file(name).read_text())
        meta = saved["_metadata"]
        assert (len(saved["data"]), meta["previous_file_existed"]) == (3, True)
        assert json.loads((trial.files / meta["older_version"]).read_text()) == content
        job = await trial.job(name)
        assert (job.saved_file, job.saved_replies) == (f"raw/hn/twitter/c1/{name}.json", 3)
    for name in FULL:
        path = f"hn/twitter/c1/{name}.json"
        assert files_below(trial.files / "raw")[path] == before[f"raw/{path}"]


async def test_replies_that_are_there_are_counted(trial: Any) -> None:
    await trial.jobs("1")
    trial.save("1", FULL["retry"])
    await trial.check()
    job = await trial.job("1")
    assert (job.saved_file, job.saved_replies) == ("raw/hn/twitter/c1/1.json", 2)


async def test_files_are_found_under_the_names_of_the_origin(trial: Any) -> None:
    """Spaces, accents and capitals stay; ``/`` and ``\\`` were ``_``; some are not below raw/."""
    rows = {
        "plain": ("El Salvador", "raw/El Salvador/twitter/Ñandú López/plain.json"),
        "slash": ("a/b", "raw/a_b/twitter/Ñandú López/slash.json"),
        "back": ("a\\b", "raw/a_b/twitter/Ñandú López/back.json"),
        "percent": ("50%25", "raw/50%25/twitter/Ñandú López/percent.json"),
        "first": ("honduras", "honduras/twitter/Ñandú López/first.json"),
        "missing": (None, "raw/unknown/twitter/Ñandú López/missing.json"),
    }
    for post_id, (country, path) in rows.items():
        await trial.posts(post_id, country=country, candidate_id="Ñandú López")
        save(trial.files, path, [{"id_str": "1"}])
    run = await trial.submit()
    assert (run["counters"]["done"], run["counters"]["submitted"]) == (len(rows), 0)
    await trial.posts("new", country="El Salvador", candidate_id="Ñandú López")
    await trial.posts("odd", country="a/b", candidate_id="..")
    await trial.submit()
    assert (await trial.check())["counters"]["done"] == 2
    paths = {post_id: (await trial.job(post_id)).saved_file for post_id in ("new", "odd")}
    assert paths == {
        "new": "raw/El Salvador/twitter/Ñandú López/new.json",
        "odd": "raw/=~a=2Fb/twitter/=~../odd.json",
    }
    for path in paths.values():  # as it is shown, it can be pasted
        async with trial.web.get(f"{trial.url}/api/artifacts/{path}") as answer:
            assert (answer.status, len(json.loads(await answer.read())["data"])) == (200, 3)


@pytest.mark.parametrize("text", ["El Salvador", "ñ", "a%2Fb", "a=b", "C:", "a b.", "~", "*?"])
def test_plain_segments_stay_as_they_are(text: str) -> None:
    assert plain_segment(text) == text


def test_plain_segments_are_injective() -> None:
    texts = ["", ".", "..", "a/b", "a\\b", "=~a=2Fb", "=~", "a\x00b", "x" * 201, "x" * 202, "=~.."]
    made = [plain_segment(text) for text in texts]
    assert len(set(made)) == len(texts)
    assert all("/" not in name and "\\" not in name and 0 < len(name) <= 200 for name in made)


async def test_posts_are_collected_again(trial: Any) -> None:
    """``recollect``: a preview first; the old file is kept as a version, and nothing is lost.

    Searches that failed before do not prevent it.
    """
    await trial.jobs("1", "2")
    trial.sim.behave("1", end="failed", end_times=2, replies=2)
    for _ in range(2):
        await trial.check()
        await trial.submit()
    await trial.call("POST", "/posts/retry")
    await trial.submit()
    await trial.check()
    assert [(await trial.post(p)).status for p in "12"] == ["done", "done"]
    old = trial.file("1").read_bytes()
    preview = await trial.call("POST", "/posts/recollect?post_id=1&dry_run=true")
    assert (preview["matched"], preview["recollected"]) == (1, 0)
    assert (await trial.call("POST", "/posts/recollect?post_id=1"))["recollected"] == 1
    trial.sim.behave("1", replies=5)
    assert (await trial.submit())["counters"]["submitted"] == 1
    assert trial.file("1").read_bytes() == old
    assert (await trial.check())["counters"]["done"] == 1
    saved = json.loads(trial.file("1").read_text())
    assert len(saved["data"]) == 5
    assert (trial.files / saved["_metadata"]["older_version"]).read_bytes() == old
    post, job = await trial.post("1"), await trial.job("1")
    assert (post.status, post.recollect, job.saved_replies) == ("done", False, 5)
    assert (await trial.submit())["counters"]["taken"] == 0
    again = await trial.call("POST", "/posts/recollect")
    assert again["recollected"] == 2
    trial.sim.behave("2", result="empty_list")
    await trial.submit()
    await trial.check()
    assert trial.file("2").exists()
