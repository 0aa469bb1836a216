"""``python -m bench.compare``: the pipelines of examples/compare, beside the same with a peer.

It prints the lines of both, and what each did. docs/comparison.md explains it.
"""

from __future__ import annotations

import ast
import io
import os
import subprocess
import tokenize

from support.postgres import PostgresServer

from bench.peers_env import ROOT, python_with_peers

EXAMPLES = ROOT / "examples"
PAIRS = {
    "quota": ("compare/quota.py", "compare/quota_procrastinate.py"),
    "join": ("join.py", "compare/join_procrastinate.py"),
    "approval": ("approval.py", "compare/approval_procrastinate.py"),
}


def lines_of_code(source: str) -> int:
    """Lines without blank ones, comments and docstrings."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ) and (ast.get_docstring(node) is not None):
            documented.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    blank = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (*blank, tokenize.ENDMARKER):
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def main() -> None:
    python = python_with_peers()
    for name, (ours, theirs) in PAIRS.items():
        counts = [lines_of_code((EXAMPLES / path).read_text("utf-8")) for path in (ours, theirs)]
        print(f"{name}: {counts[0]} lines with Esclusa, {counts[1]} with Procrastinate")
    with PostgresServer() as server:
        for name in ("quota", "join", "approval", "killed"):
            environ = {**os.environ, "COMPARE_URL": server.create_database(f"compare_{name}")}
            for step in (name, "after_kill") if name == "killed" else (name,):
                done = subprocess.run(
                    [python, "-m", "bench.compare_peer", step],
                    cwd=ROOT,
                    env=environ,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                expected = 9 if step == "killed" else 0
                assert done.returncode == expected, done.stderr
                print(f"{step}, Procrastinate: {done.stdout.strip() or 'killed'}")


if __name__ == "__main__":
    main()
