"""Names that an operator types: unknown ones are refused, with what was probably meant."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest
from click.shell_completion import ShellComplete
from support.command import RunCommand

from esclusa.app import open_runtime, open_store
from esclusa.cli.root import root
from esclusa.cli.session import Session
from esclusa.model.names import nearest


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            "records greetings --status nonsense",
            2,
            "greetings has no state 'nonsense'; it has waiting",
        ),
        ("records greetings --status greted", 2, "Did you mean greeted?"),
        ("records greetings -w status=greted", 2, "Did you mean greeted?"),
        ("records greetings --status greted --format csv", 2, "Did you mean greeted?"),
        ("records greetings -w nmae=ada", 2, "greetings has no field nmae; it has id"),
        ("records greetings -w nmae=ada", 2, "Did you mean name?"),
        ("records greetings -w last_eror.type=timeout", 2, "has no field last_eror.type; it has"),
        ("records greetings --order nmae", 2, "Did you mean name?"),
        ("records greeting", 1, "Did you mean greetings?"),
        ("show greeting ada", 1, "Did you mean greetings?"),
        ("move greetings ada --to faild --yes", 2, "Did you mean failed?"),
        ("repair greetings --from x --to faild --dry-run", 2, "Did you mean failed?"),
        ("retry greetings -w status=faild --yes", 2, "Did you mean failed?"),
        ("runs --outcome okk", 2, "Did you mean ok?"),
        ("runs --cycle hello.gret", 1, "Did you mean hello.greet?"),
        ("run greet", 1, "Did you mean hello.greet?"),
        ("pause hello.gret", 1, "Did you mean hello.greet?"),
        ("worker --only hello.gret", 1, "Did you mean hello.greet?"),
        ("limit postcards 3 --per day", 1, "there is no budget 'postcards'; there are: -"),
        ("migrate --from-now say-helo", 1, "Did you mean hello.say-hello?"),
        ("views nothing", 1, "there is no view 'nothing'; there are: -"),
        ("dead-letters list --table greeting", 1, "Did you mean greetings?"),
        ("dead-letters list -w status=opn", 2, "Did you mean open?"),
        ("--pipelines mediaa status", 3, "did you mean media?"),
        ("recrods greetings", 2, "Did you mean records?"),
        ("dead-letters grups", 2, "Did you mean"),
        ("records greetings name=ada", 2, "A filter needs -w: -w name=ada"),
        ("retry greetings status=failed --yes", 2, "A filter needs -w: -w status=failed"),
    ],
)
@pytest.mark.parametrize("esclusa", ["sqlite"], indirect=True)
def test_an_unknown_name_is_refused(
    esclusa: RunCommand, words: str, code: int, message: str
) -> None:
    assert esclusa("migrate").code == 0
    answer = esclusa(*words.split())
    assert (answer.code, message in answer.err) == (code, True), answer
    assert answer.out == ""


@pytest.mark.parametrize("esclusa", ["sqlite"], indirect=True)
def test_a_state_that_records_are_in_is_listed_although_it_is_not_declared(
    greeted: RunCommand, tmp_path: Path
) -> None:
    [store] = tmp_path.rglob("*.db")
    apsw.Connection(str(store)).execute("UPDATE greetings SET status = 'old' WHERE id = 'ada'")
    listed = greeted("records", "greetings", "--status", "old", "--json")
    assert [record["id"] for record in listed.json["items"]] == ["ada"]
    refused = greeted("move", "greetings", "-w", "status=old", "--to", "waiting", "--yes")
    assert "esclusa repair" in refused.err


def test_the_nearest_name() -> None:
    known = ["posts", "pending_jobs", "replies.process-jobs", "replies.process-posts"]
    assert nearest("pots", known) == "posts"
    assert nearest("process-jobs", known) == "replies.process-jobs"
    assert nearest("PENDING_JOBS", known) == "pending_jobs"
    assert nearest("zzz", known) is None
    assert nearest("", known) is None


@pytest.mark.parametrize(
    ("words", "incomplete", "found"),
    [
        ("records", "gre", {"greetings"}),
        ("records greetings --status", "", {"waiting", "greeting", "greeted", "failed"}),
        ("records greetings -w", "na", {"name="}),
        ("records greetings -w", "status=gr", {"status=greeting", "status=greeted"}),
        ("records greetings --order", "na", {"name"}),
        ("move greetings --to", "f", {"failed"}),
        ("move greetings --set", "na", {"name="}),
        ("runs --outcome", "p", {"partial"}),
        ("runs --cycle", "hello", {"hello.greet"}),
        ("migrate --from-now", "", {"hello.say-hello"}),
        ("dead-letters list -w", "error_t", {"error_type="}),
        ("dead-letters list --table", "gre", {"greetings"}),
        ("limit", "p", set()),
    ],
)
@pytest.mark.parametrize("esclusa", ["sqlite"], indirect=True)
def test_the_shell_completes_names(
    esclusa: RunCommand, words: str, incomplete: str, found: set[str]
) -> None:
    complete = ShellComplete(
        root, {"obj": Session(open_runtime, open_store)}, "esclusa", "_ESCLUSA_COMPLETE"
    )
    items = {item.value for item in complete.get_completions(words.split(), incomplete)}
    assert items == found
