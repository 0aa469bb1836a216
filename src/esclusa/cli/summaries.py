"""The summaries of the commands, so that ``esclusa --help`` imports none of them.

A test compares them with the commands. A command without an entry is imported for its summary.
"""

from __future__ import annotations

from typing import Final

# The first sentence of each command, and of the built-in pipelines' own groups.
SUMMARIES: Final[dict[str, str]] = {
    "new": "Write a new pipeline with its test, settings and compose file.",
    "dev": "Run worker and console on loopback, and start them again when a file changes.",
    "testing": "Tests of your own pipeline (esclusa.testing).",
    "demo": "Run the four built-in pipelines against simulated providers with real faults.",
    "serve": "Serve the API and the console; with --worker, run the cycles, too.",
    "worker": "Run the cycles until SIGTERM or Ctrl-C; a second signal aborts.",
    "run": "Run a cycle once.",
    "tick": "Run what is due within a time limit, then exit.",
    "status": "Counts, backlogs, rates, cycles, budgets and workers.",
    "kinds": "Every kind of record, with counts per state.",
    "records": "List records of a kind, or write the whole list as a file.",
    "show": "One record: its fields, its history, and why it is not moving.",
    "why": "Why a record is not moving, and when it can move next.",
    "graph": "Draw the lifecycle of a kind.",
    "related": "Records that a record refers to, and records that refer to it.",
    "search": "Records of every kind whose id equals or begins with TEXT.",
    "filters": "Saved filters, which users share by name: list, save, rename or delete them.",
    "views": "The views of the pipelines with their number of records, or one page of VIEW.",
    "cycles": "Every cycle: schedule, state, last run and next run.",
    "runs": "Runs of cycles, newest first.",
    "budgets": "Each budget: spent, left, next reset, and who spent it.",
    "workers": "Worker processes.",
    "leases": "Records that are held now: by which worker, until when.",
    "alerts": "Alerts, newest first.",
    "actions": "The actions that the pipelines declare for operators.",
    "retry": "Retry exhausted records.",
    "move": "Move records to a state by a declared move.",
    "repair": "Move all records out of a state that their lifecycle does not have.",
    "dead-letters": "Dead letters: list them by error, redrive or discard them.",
    "act": "Apply ACTION of a pipeline (replies.recollect) to records, by id or by filters.",
    "pause": "Pause a cycle: no worker starts it or claims for it.",
    "resume": "Resume a paused cycle.",
    "limit": "Change the limit of a budget's current window, until it resets.",
    "alert-rules": "Rules for alerts: list them, change thresholds, mute alerts.",
    "rates": "What each stage did: outcomes and handler times.",
    "times": "How long records stay in each state: median, 95th percentile, slowest records.",
    "history": "Export every creation and move of records as an event log for process mining.",
    "archives": "The archive of each kind and its exports.",
    "audit": "What operators did: who, what, how many records, why.",
    "migrate": "Bring the store's schema up to date, and records of renamed states.",
    "lifecycle": "Lifecycles: what is declared beside what is stored.",
    "doctor": "Check settings, store, clock, workers, artifacts and pipelines; say what to do.",
    "mcp": "Serve status, records, why and dry runs to an MCP client, on stdin and stdout.",
    "completion": 'Print the completion script of a shell: eval "$(esclusa completion bash)".',
    "version": "Print the version.",
    "replies": "Replies of social posts, by Information Tracer.",
    "tenders": "New public tenders become push notifications, once per device.",
    "media": "Media of webhook publications, downloaded before their links expire.",
    "documents": "Ready folders of financial PDFs, turned into traceable numbers.",
}
