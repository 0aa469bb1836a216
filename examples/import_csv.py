"""Import from a file by a command of the pipeline's own; what cannot be read is named by row.

    export ESCLUSA_PIPELINES=examples/import_csv.py:app
    esclusa contacts import people.csv
    esclusa run contacts.greet

CSV, JSON and NDJSON. The same file again adds nothing: the e-mail is the key.
"""

from pathlib import Path

import click
from pydantic import ValidationError

from esclusa import App, Attempt, Backoff, Lifecycle, Outcome, Record, Runtime, To
from esclusa.cli import FAILED, OK, Group, Session, print_report
from esclusa.imports import ImportReport, read_file


class Contact(Record, table="contacts", key="email"):
    email: str
    name: str
    age: int | None = None

    lifecycle = Lifecycle("new -> greeted")


app = App("contacts")


@app.stage(Contact, take="new", retry=Backoff(tries=None))
async def greet(contact: Contact, at: Attempt) -> Outcome:
    return To("greeted")


async def import_rows(runtime: Runtime, file: Path) -> ImportReport:
    report = ImportReport()
    valid = []
    for row in read_file(file, ["email", "name", "age"]):
        if row.values is None:
            report.refuse(row.number, row.fault or "it cannot be read")
            continue
        try:
            valid.append(Contact(**row.values))
        except ValidationError as error:
            report.refuse(row.number, error.errors()[0]["msg"])
    report.count(await runtime.records.insert(valid))
    return report


@app.commands
def commands() -> click.Group:
    @click.group(cls=Group)
    def contacts() -> None:
        """Contacts from files."""

    @contacts.command("import")
    @click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
    @click.pass_obj
    def import_(session: Session, file: Path) -> int:
        """Add the contacts of FILE (CSV, JSON or NDJSON)."""
        report = session.work(lambda runtime: import_rows(runtime, file))
        answer = report.answer()
        session.show(answer, lambda screen: print_report(screen, answer))
        return FAILED if report.errors else OK

    return contacts
