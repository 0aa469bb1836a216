"""Texts as codes with values. The engine stores what happened; a reader puts it into words.

``TEXTS`` has the English sentence of every code. The console translates the sentence with its
catalog and fills in the same values, so no reader has to parse a sentence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from esclusa.model.text import Text

__all__ = ["TEXTS", "Text", "dump", "error_text", "load", "text"]

# The English sentence of each code, with its values in braces.
TEXTS: Final[Mapping[str, str]] = {
    # Why a record moved or stayed: `reason` in the history and in dead letters.
    "retrying": "attempt {attempt}, will retry",
    "retrying_of": "attempt {attempt}/{tries}, will retry",
    "permanent": "permanent error",
    "exhausted": "reached the maximum of attempts ({tries})",
    "handler_fault": "the handler is wrong: not retried",
    "handler_fault_retried": "the handler is wrong; without an exhausted state it is retried late",
    "exhaustion_failed": "exhaustion failed, will retry: {why}",
    "worker_stopped": "given back: the worker stopped",
    "run_stopped": "given back: {why}",
    "batch_lost": "given back: the lease of another record in its batch was lost",
    "lease_expired": "the lease of {worker} expired",
    "moved_elsewhere": "another program moved it while {worker} held it; the outcome {to} is lost",
    "store_failed": "the store could not be used: {why}",
    "not_counted": "not counted as an attempt, because the stage pauses: {type}: {why}",
    "stage_waits": "given back: {stage} pauses until {until}",
    "errors_in_a_row": "{count} errors in a row; the last one is {type}: {why}",
    "deadline_waits": "it goes to {to} by itself after {limit} in this state",
    "deadline_moved": "longer than {limit} in {state}",
    "state_renamed": "the state {old} is called {new} now",
    # Errors that no handler raised: `last_error`.
    "crash": "the worker stopped without settling this record",
    "rejected": "the settlement was rejected: {why}",
    "rejected_move": "the settlement ({reason}) was rejected: {why}",
    "handler_timeout": "the handler did not answer within {seconds:g} seconds, the stage's timeout",
    "exhaustion_broken": "the dead letter or the effects of exhaustion failed: {type}: {why}",
    "wrong_answer": "stage {stage}: the handler must answer To, Retry or Wait, not {got}",
    "wrong_answers": (
        "stage {stage}: a batch of {count} needs a list of {count} outcomes, not {got}"
    ),
    "lost_assignment": (
        "stage {stage}: the handler assigned to {fields}, which is not stored; answer it:"
        " To(…, field=value)"
    ),
    # How a run ended: `message` of a run.
    "handler_wrong": "the handler of {stage} is wrong: {why}",
    "budget_empty": "budget {budget} is empty until {until}",
    "stage_paused_until": "{stage} pauses until {until}: {why}",
    "records_exhausted": "records ended in {state}",
    "outcomes_waiting": "{count} outcomes wait for a lock of another program",
    "run_cancelled": "stopped before the end",
    "run_cut": "cut by {by}; the next run continues",
    "run_cut_too": "{why}; {cut}",
    "by_stop": "a stop of the process",
    "by_tick": "the time limit of the tick",
    "run_abandoned": "worker {worker} stopped without finishing this run",
    "run_continued": "continues run {run}, whose worker was taken for dead",
    # What an alert reports: `message` of an alert.
    "put_refused": "{table}: another record has a value that must be unique",
    "run_not_noted": "{cycle}: the pipeline could not note its run: {why}",
    "cycle_failed": "{cycle} failed: {why}",
    "cycle_blocked": "{cycle} is blocked: {why}",
    "stage_paused": "{stage} pauses, and then tries one record at a time: {why}",
    "cycle_not_started": "{cycle} cannot start: {why}",
    "not_started": "{pipelines} cannot start: {why}",
    "error_rate": "{cycle}: {failed} of {taken} records failed ({share}, more than {limit})",
    "deadline_passed": (
        "{table}: records are in {state} for longer than {limit}, and go to {to}; first {record}"
    ),
    "backlog": "{stage}: a record has been due since {since}, longer than {limit}",
    "silence": "{stage}: no record has gone through for {limit}",
    "dead_letters": "{table}: {count} dead letters are open, {limit} or more",
    "no_worker": "no worker is running, and work has been due since {since}",
    "no_worker_for": "no worker runs {cycle}, and its work has been due since {since}",
    "budget_early": (
        "budget {budget}: {used} of {limit} per {per} are used; at this rate nothing is left at"
        " {at}, before the reset at {reset}"
    ),
    "alert_ended": "over after {time}: {message}",
    "pipeline_failed": "pipeline {pipeline} is not ready: {why}",
    "pipeline_close_failed": "pipeline {pipeline} did not close: {why}",
    "pipeline_started": "pipeline {pipeline} is ready now",
    "lifespan_timeout": "the lifespan was not open after {seconds:g} seconds",
    "lifespan_timeout_close": "the lifespan was not closed after {seconds:g} seconds",
    "handler_blocks": (
        "the handler of {stage} blocks the event loop: record {record}, {seconds:g} s so far,"
        " {where}"
    ),
    "task_blocks": "the event loop is blocked by {task}: {seconds:g} s so far, {where}",
    "loop_runs": "the event loop runs again; it was blocked for {seconds:g} s",
    "run_goes_on": (
        "this worker was taken for dead; run {former}, which was ended, goes on as {run}"
    ),
    "registered_again": "this worker was taken for dead; it is registered again",
    # Why a record is not moving: `esclusa why`.
    "why_undeclared": (
        "{state!r} is not a state of {table}, and Esclusa did not write it; move it with:"
        " esclusa repair {table} --from {state!r} --to STATE --reason TEXT"
    ),
    "why_undeclared_moved": (
        "{state!r} is not a state of {table}; {who} moved it there at {at}, as another version"
        " declares it; move it with:"
        " esclusa repair {table} --from {state!r} --to STATE --reason TEXT"
    ),
    "why_undeclared_earlier": (
        "{state!r} is not a state of {table} any more; an earlier version declared it; move it"
        " with: esclusa repair {table} --from {state!r} --to STATE --reason TEXT"
    ),
    "why_renamed": (
        "{state} is called {new} now; the next worker of this version, or 'esclusa migrate',"
        " moves it there"
    ),
    "why_foreign_state": "{state} is a state of another program; Esclusa leaves the record alone",
    "why_before_start": (
        "{stage} takes only records that are due from {since} on, and this one was due at {due}"
    ),
    "why_finished": "finished: {state} is a terminal state",
    "why_no_stage": (
        "no stage takes {state}; an operator or another record can move it to {targets}"
    ),
    "why_exhausted": (
        "no attempts are left after attempt {attempt}; an operator can move it to {targets}"
    ),
    "why_exhausted_by": (
        "no attempts are left after attempt {attempt}: {type}: {message};"
        " an operator can move it to {targets}"
    ),
    "why_filtered": "{stage} takes only records whose {conditions}",
    "why_filtered_and": "{first}, and whose {second}",
    "why_filtered_null": "{field} is null; it is {value}",
    "why_filtered_not_null": "{field} is not null; it is empty",
    "why_filtered_not_empty": "{field} is not empty; it is empty",
    "why_filtered_eq": "{field} is {wanted}; it is {value}",
    "why_filtered_in": "{field} is one of {wanted}; it is {value}",
    "why_filtered_lt": "{field} is below {wanted}; it is {value}",
    "why_filtered_le": "{field} is at most {wanted}; it is {value}",
    "why_filtered_gt": "{field} is above {wanted}; it is {value}",
    "why_filtered_ge": "{field} is at least {wanted}; it is {value}",
    "no_value": "empty",
    "why_held": "held by {worker} until {due}, attempt {attempt}",
    "why_held_of": "held by {worker} until {due}, attempt {attempt} of {tries}",
    "why_orphan": "the lease of {worker} expired at {due}; the next claim takes it over",
    "why_key_limit": (
        "{stage} handles {count} records whose {field} is {value}, the most at once; this one is"
        " next when one of them is done"
    ),
    "why_locked": (
        "another program has it since {since}; if it keeps it, the next claim after {until}"
        " takes it over"
    ),
    "why_not_due": "not due until {due}",
    "why_deadline": "at {due}, after {limit} in {state}, it goes to {to} by itself",
    "why_waits": "not due until {due}: {reason}",
    "why_failed": "not due until {due}: attempt {attempt} failed ({type}: {message})",
    "why_failed_of": "not due until {due}: attempt {attempt} of {tries} failed ({type}: {message})",
    "why_due": "due since {due}; {stage} will claim it in turn",
    "why_no_worker": "no worker is running; start one with 'esclusa worker'",
    "why_budget_even": "budget {budget} spaces its units evenly; the next unit is free at {until}",
    "why_stage_paused": "{stage} pauses until {until}: {why}",
    "why_stage_trying": "{stage} tries one record at a time: {why}",
    "why_paused": "cycle {cycle} is paused; resume it with 'esclusa resume {cycle}'",
    "why_paused_by": (
        "cycle {cycle} was paused by {who} at {at}; resume it with 'esclusa resume {cycle}'"
    ),
    "why_paused_because": (
        "cycle {cycle} was paused by {who} at {at}: {why}; resume it with 'esclusa resume {cycle}'"
    ),
    "why_manual": "cycle {cycle} runs only when it is started by hand",
    "why_schedule": "cycle {cycle} runs {schedule}, next at {slot}",
    "why_budget_empty": "budget {budget} is empty until {reset} ({used} of {limit} per {per})",
    "why_budget_short": (
        "budget {budget} has {left} of {limit} per {per} left until {reset}, and a record needs"
        " {cost}"
    ),
    "why_budget_blocked": "the provider of budget {budget} grants nothing before {until}",
    # When a stage will have handled what is due: `drain_note` of a stage.
    "drain_cycle_paused": "cycle {cycle} is paused",
    "drain_stage_paused": "it pauses until {until}",
    "drain_trying": "it tries one record at a time",
    "drain_manual": "cycle {cycle} runs only when it is started by hand",
    "drain_no_worker": "no worker runs cycle {cycle}",
    "drain_next_run": "cycle {cycle} runs next at {at}",
    "drain_idle": "no record was finished in the last 5 minutes",
    "drain_budget": "budget {budget} has {left} left and grants {limit} per {per}",
    # Why an operation skips a record.
    "same_state": "it is {state} already",
    "decided_by_others": "only {names} may move it out of {state}",
    "decided_by_nobody": "nobody is named who may move it out of {state}",
    "changed_meanwhile": "it changed meanwhile",
    # Why a request is refused: the `text` of a Refusal.
    "plain": "{message}",
    "record_not_found": "there is no record {id!r} in {table}",
    "record_not_found_by_key": (
        "there is no record {id!r} in {table}; an id is made of its key: {key_id}"
    ),
    "archived_record_not_found": "there is no record {id!r} in the archive of {table}",
    "kind_not_found": "there is no kind {table!r}; there are: {known}",
    "cycle_not_found": "there is no cycle {name!r}; there are: {known}",
    "no_cycles": "there is no cycle {name!r}; the pipelines declare none",
    "pipeline_not_found": "there is no pipeline {name!r}; there are: {known}",
    "stage_not_found": "there is no stage {name!r} to drain; there are: {known}",
    "stage_not_declared": "there is no stage {name!r}; there are: {known}",
    "view_not_found": "there is no view {name!r:.200}; there are: {known}",
    "budget_not_found": "there is no budget {budget!r}; there are: {known}",
    "window_not_found": "budget {budget} has no window per {per}; it has {known}",
    "cycle_never_started": (
        "no worker or server has run {cycle} yet; run 'esclusa migrate' and start one"
    ),
    "wake_held": "{id!r} in {table} is being handled now; send the signal again",
    "no_retry": "{table} has no exhausted state from which a stage can take a record again",
    "dead_letter_orphaned": (
        "there is no record {id!r} in {table} any more; discard the dead letter"
    ),
    "dead_letter_record_gone": "its record does not exist any more",
    "dead_letter_record_moved": "its record is {state}",
    "dead_letter_superseded": "its record was exhausted again",
    "dead_letter_outdated": (
        "{record} is {state}: it was retried or moved meanwhile; discard the dead letter"
    ),
    "dead_letter_final": "{record} is {state}: no stage takes it again",
    "running_here": "{cycle} is running now in this process; wait for it to end",
    "running_elsewhere": "{cycle} is running now; it runs only once at a time",
    "slot_done": "{cycle} has already run for {slot}",
    "paused": "{cycle} is paused; resume it first",
    "undeclared_move": (
        "{where}: the move {frm} -> {to} is not declared; from {frm} it can go to {targets}"
    ),
    "undeclared_move_terminal": (
        "{where}: the move {frm} -> {to} is not declared; {frm} is a terminal state"
    ),
    "undeclared_state": (
        "{where}: {state!r} is not a state of {table}; move such records with:"
        " esclusa repair {table} --from {state!r} --to STATE --reason TEXT"
    ),
    "repair_declared": "{state} is a state of {table}: 'esclusa move' moves its records",
    "repair_renamed": (
        "{state} of {table} is called {new} now: 'esclusa migrate' and the workers move its records"
    ),
    "repair_reason": "a repair needs a reason; it is kept in the history and the audit log",
    "system_table": "{table} is a system table: only the engine moves its records",
    "choose_records": "name the records of {table}: by their ids, or by a filter",
    "choose_once": "give ids or a filter, not both",
    "did_you_mean": "{refusal}. Did you mean {name}?",
    "no_saved_filter": "{table} has no saved filter {name!r}; it has: {known}",
    "saved_filter_name": "the name of a filter has 1 to 80 characters, not {name!r:.90}",
    "saved_filter_taken": "{table} has a saved filter {name!r} already; rename or delete it",
    "saved_filter_empty": "choose filters, an order or columns first: there is nothing to save",
    # What is wrong with a filter, an order or a cursor.
    "action_not_found": "there is no action {action}; there are: {known}",
    "action_parameter": "{action} has no parameter {names}; it has: {known}",
    "action_parameters": "the parameters of {action} do not fit: {why}",
    "action_records": "{action} needs ids or a filter; an empty filter means all that it is for",
    "action_without_records": "{action} acts on no record: leave out ids and filters",
    "no_rule": "there is no rule {rule}; the rules are: {known}",
    "no_rule_subject": "the rule {rule} has no {subject}; it has: {known}",
    "bad_threshold": "the threshold of {rule} is a number of {unit} from 0 to {most:g}",
    "no_threshold": "{given!r} is no threshold: write 2h, 20%, a number, or off",
    "mute_needs_end": "a mute ends at a time that is ahead, at most a year",
    "mute_needs_note": "a mute needs a note: say why",
    "rule_needs_reason": "a changed rule needs a reason: say why",
    "no_alert_name": "there is no alert called {name}",
    "no_parameter": "there is no parameter {names}; there are: {known}",
    "no_field": "{table} has no field {name}; it has {fields}",
    "no_state": "{table} has no state {state!r}; it has {states}",
    "no_group": "{table} cannot be grouped by {field}; it can by {fields}",
    "no_sum": "{table} has no number field {field} to sum; there are {fields}",
    "many_groups": "{table} has more than {cap} groups by {fields}; add a filter",
    "no_order": "{table} cannot be ordered by {field}; it can by {fields}",
    "no_archive": "{table} keeps no archive",
    "bad_limit": "limit must be between 1 and 10000, not {limit}",
    "not_comparable": (
        "{table}.{field} holds {type} and cannot be compared; a value inside JSON can:"
        " {field}.name=value"
    ),
    "no_order_inside": (
        "{table}.{field} is inside JSON and compared as text: use =, ~, =null or !=null"
    ),
    "not_searchable": "{table}.{field} is {type}; ~ searches texts, in lists of records",
    "no_relative_time": "{table}.{field}: a time relative to now is for lists of records only",
    "no_search_in_store": (
        "Firestore cannot search within texts ({field}~…): it has no index for that; filter by"
        " error_type, a field's value or the beginning of an id, or export the list"
    ),
    "no_path_in_store": (
        "Firestore has no index for {field}; inside JSON it can find error_type=value only"
    ),
    "not_a_filter": (
        "{filter!r} is not a filter; "
        "write field=value, field=a,b, field>=value, field~part, field=null or field!=null"
    ),
    "only_not_null": (
        "{filter!r}: != works only with null (field!=null); list the values you want instead"
    ),
    "bad_value": "{field} is compared with a value of type {type}, not {value!r:.80}",
    "bad_value_example": (
        "{field} is compared with a value of type {type}, not {value!r:.80}, for example {example}"
    ),
    "many_values": "{field}: at most 1000 values, not {count}",
    "no_operator": "{field}: there is no operator {operator!r}; there are {known}",
    "bad_null": "{field}: null is true or false, not {value!r:.80}",
    "bad_operand": "{field} is compared with text, a number or true and false, not {value!r:.80}",
    "single_value": "{field} is compared with one value, not with {count}",
    "empty_operators": "{field}: an empty object compares nothing; write for example {example}",
    "filter_needs_value": (
        "{filter}: records to change are chosen by fields of {table}, each with a value"
    ),
    "secret_field": (
        "{table}: {field} is a secret; a token with the role read cannot filter or order by it"
    ),
    "bad_cursor": "{cursor!r:.60} is not a cursor of this list; use `next` of the page before",
    "export_after": "a file is the whole list: leave out `after`",
    "pipeline_opening": "pipeline {pipeline} is not ready yet: its lifespan is opening",
    "pipeline_not_ready": "pipeline {pipeline} is not ready ({error}); it is tried again",
    "key_field": "{table}.{name} is part of the key and cannot change",
    # How a declared lifecycle differs from the stored one.
    "stage_new": "stage {stage} is new; records in {states} that it takes at once: {count}",
    "stage_wider": "stage {stage} now takes {states}, too; records that it takes at once: {count}",
    "stage_since": (
        "stage {stage} takes records in {states} that are due from {since} on; now: {count}"
    ),
    "stage_removed": "stage {stage} is not declared any more; it took {states}",
    "start_needs_time": (
        "{stage} cannot begin now: a row of {table} may have no due time, and then its creation"
        " counts; map it with track(created_at=…)"
    ),
    # Why a store cannot answer.
    "store_not_open": "{store} is not open",
    "check_replica": "check ESCLUSA_READ_STORE and the replication",
    "replica_unknown": "the replica was not asked yet",
    "replica_used": "lists and counts are read from the replica {store}",
    "replica_away": "lists and counts are read from the primary: the replica is away: {why}",
    "replica_behind": "lists and counts are read from the primary: the replica is {seconds} s"
    " behind, and {most} s are allowed",
    "store_unavailable": "{store} does not answer: {why}",
    "store_locked": "{store}: another process has kept the database locked for {seconds} s",
    "store_read_only": "{store} is read-only: this process cannot write the file or its folder",
    "store_damaged": "{store} is damaged ({why}); restore it from a copy",
    "table_locked": "the table {table} is locked by another program",
    "document_locked": "{table} {id}, or what it changes, is locked by another program",
    "row_locked": "{table} {id} is locked by another program ({holder})",
    "migration_locked": (
        "cannot {step}: the table is locked by another program ({holder}); end that transaction,"
        " or run 'esclusa migrate' again later"
    ),
    "write_timeout": "the store does not write it within {seconds:g} s",
    "too_large": "it is too large for the store: {why}",
    # What a health check found, and what to do: `text` and `do` of a Check.
    "check_answers": "it answers",
    "check_no_answer": "it does not answer ({error})",
    "check_timeout": "no answer within {seconds:g} s",
    "check_failed": "the check failed ({error})",
    "check_log": "see the server's log",
    "data_whole": "no fault was found",
    "data_partly_read": "no fault was found in {seconds:g} s; the rest was not read",
    "data_faulty": "it has faults",
    "run_doctor": "run 'esclusa doctor'",
    "lifespan_failed": "its lifespan failed: {why}",
    "routes_failed": "its routes cannot be built ({error})",
    "schema_current": "up to date",
    "schema_behind": "{n} statements behind",
    "schema_automatic": "run, worker and serve bring it up to date",
    "schema_migrate": "run 'esclusa migrate'",
    "schema_docs": "see docs/operations.md, Stores",
    "states_declared": "all records are in declared states",
    "state_undeclared": "{table}: records in {state!r}, which is not one of its states: {count}",
    "state_repair": "run: esclusa repair {table} --from {state!r} --to STATE --reason TEXT",
    "state_not_renamed": "{table}: records in {state}, which is called {new} now: {count}",
    "state_migrate": "run 'esclusa migrate', or let a worker of this version run",
    "unadopted": (
        "{table}: {count} documents have no tracking fields yet and are not worked ({examples})"
    ),
    "unadopted_count": "{table}: {count} documents have no tracking fields yet and are not worked",
    "adopt_worker": (
        "a worker adopts them at the start of a run, or after {seconds:g} s; 'esclusa migrate'"
        " adopts them now"
    ),
    "work_in_time": "no work waits for a worker",
    "no_worker_needed": "no worker is running; nothing is late yet",
    "start_worker": "start one with 'esclusa worker', or let something call 'esclusa tick'",
    "other_offset": (
        "ESCLUSA_CLOCK_OFFSET_SECONDS is {own:g}, but worker {worker} on this store has"
        " {offset:g}: each would take the other's leases for expired"
    ),
    "set_offset": "set the same offset for all, or stop that worker",
    "pipeline_parts": "kinds {kinds}, stages {stages}, cycles {cycles}",
}


def text(code: str, **values: Any) -> Text:
    """The text of this code. Raises KeyError for a code that ``TEXTS`` lacks or a missing value."""
    return Text.of(code, TEXTS[code], values)


def dump(sentence: str) -> str:
    """The form in which a sentence is stored: a text with its values, or the words of a person."""
    return sentence.dump() if isinstance(sentence, Text) else sentence


def load(stored: str) -> str:
    """A stored sentence: a ``Text`` if it was stored as one, otherwise the words of a person."""
    try:
        return _unpacked(json.loads(stored)) if stored.startswith(_STORED) else stored
    except (ValueError, KeyError, TypeError, AttributeError):
        return stored


def error_text(error: Mapping[str, Any]) -> str:
    """The message of a stored error: a ``Text`` if it was stored as one."""
    try:
        if "sentence" in error:
            return Text(error["sentence"], **_values(error["values"]))
        return text(error["code"], **_values(error["values"]))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return str(error.get("message", ""))


# How a stored text begins: one of Esclusa itself, or one of a pipeline.
_STORED = ('{"code"', '{"sentence"')


def _unpacked(stored: dict[str, Any]) -> Text:
    if "sentence" in stored:
        return Text(stored["sentence"], **_values(stored["values"]))
    values = _values(stored)
    return text(values.pop("code"), **values)


def _values(stored: dict[str, Any]) -> dict[str, Any]:
    return {n: _unpacked(v) if isinstance(v, dict) else v for n, v in stored.items()}
