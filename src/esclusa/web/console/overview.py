"""The overview of the map: one compact card for each pipeline."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from esclusa.model.plan import Plan
from esclusa.model.state_roles import Role

# The roles that a card counts, in this order.
ROLES: tuple[Role, ...] = ("waiting", "working", "failed", "resting", "finished")


def card(
    plan: Plan,
    kinds: Sequence[Mapping[str, Any]],
    stages: Mapping[str, Mapping[str, Any]],
    names: Mapping[Role, tuple[str, str]],
) -> dict[str, Any]:
    """A pipeline in a few numbers: its records by role, what is stuck or failed, its pace.

    ``kinds`` are its lifecycles as the map draws them, ``stages`` answers of the read model,
    ``names`` the words for one and for several records of each role.
    """
    nodes = [(k["table"], node) for k in kinds for node in k["diagram"]["nodes"]]
    own = [stages[s.name] for s in plan.stages if s.name in stages]
    counted = []
    for role in ROLES:
        of_role = [(table, node) for table, node in nodes if node["role"] == role]
        if of_role:
            states: dict[str, list[str]] = {}
            for table, node in of_role:
                states.setdefault(table, []).append(node["state"])
            count = sum(node["count"] for _, node in of_role)
            counted.append(
                {
                    "role": role,
                    "names": names[role],
                    "count": count,
                    "exact": all(node["exact"] for _, node in of_role),
                    "states": json.dumps(states),
                }
            )
    ages = [s["oldest_due_seconds"] for s in own if s["oldest_due_seconds"] is not None]
    return {
        "roles": counted,
        "stuck": sum(bool(node["due"] and node["due"]["stuck"]) for _, node in nodes),
        "undeclared": sum(c["count"] for k in kinds for c in k["undeclared"]),
        "due": sum(s["due"] for s in own),
        "due_exact": all(s["due_exact"] for s in own),
        "oldest": max(ages, default=None),
        "per_minute": round(sum(s["per_minute"] for s in own), 1),
    }
