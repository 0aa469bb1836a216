"""Join values to labels, years and headers: by their place on the page, or by their order.

A join that is not certain is none: the caller leaves the field empty and lowers the confidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from esclusa.pipelines.documents.answers.entity_tree import EntityNode
from esclusa.pipelines.documents.boxes import Corners

# The share of the smaller height that two boxes of one row have in common.
ROW_OVERLAP = 0.5


@dataclass(frozen=True, slots=True)
class Joined:
    """What was found for a value; ``unclear`` if there were candidates and none is certain."""

    node: EntityNode | None = None
    unclear: bool = False


def by_order(nodes: Sequence[EntityNode], field: str) -> dict[int, EntityNode] | None:
    """Return the partner of each value among siblings that alternate, by the value's identity.

    VALUE YEAR VALUE YEAR and YEAR VALUE YEAR VALUE do. None if they do not.
    """
    row = [node for node in nodes if node.field in (field, "LINE_ITEM_VALUE")]
    pairs = list(zip(row[::2], row[1::2], strict=False))
    kinds = [(a.field, b.field) for a, b in pairs]
    if len(row) % 2 or len(set(kinds)) != 1 or kinds[0][0] == kinds[0][1]:
        return None
    return {
        id(a if a.field == "LINE_ITEM_VALUE" else b): b if a.field == "LINE_ITEM_VALUE" else a
        for a, b in pairs
    }


def column_header(
    value: EntityNode, headers: Sequence[EntityNode], values: Sequence[EntityNode]
) -> Joined:
    """Return the header above the column of a value, on its page.

    The column is as wide as all values of the page that stand over or under each other.
    """
    place = value.place
    if place is None:
        return Joined(unclear=bool(headers))
    page, box = place
    near = [
        (node, at[1])
        for node in headers
        if (at := node.place) is not None and at[0] == page and _middle(at[1]) < box[3]
    ]
    left, right = _column(box, [v.place[1] for v in values if v.place and v.place[0] == page])
    over = [(node, at) for node, at in near if at[0] < right and at[2] > left]
    if not over:
        return Joined(unclear=bool(headers))
    lowest = max(at[1] for _, at in over)
    row = [(node, at) for node, at in over if at[3] > lowest]
    exact = [(node, at) for node, at in row if at[0] < box[2] and at[2] > box[0]]
    found = exact if len(row) > 1 else row
    return Joined(found[0][0]) if len(found) == 1 else Joined(unclear=True)


def row_label(value: EntityNode, labels: Sequence[EntityNode]) -> Joined:
    """Return the label to the left of a value in its row, the nearest one."""
    place = value.place
    if place is None:
        return Joined(unclear=bool(labels))
    page, box = place
    row = [
        (at[1][0], node)
        for node in labels
        if (at := node.place) is not None
        and at[0] == page
        and at[1][0] < box[0]
        and _middle_x(at[1]) < box[0]
        and _overlap(at[1][1], at[1][3], box[1], box[3]) >= ROW_OVERLAP
    ]
    if not row:
        return Joined(unclear=bool(labels))
    nearest = max(left for left, _ in row)
    found = [node for left, node in row if left == nearest]
    return Joined(found[0]) if len(found) == 1 else Joined(unclear=True)


def header_above(value: EntityNode, headers: Iterable[EntityNode]) -> EntityNode | None:
    """Return the nearest header above a value, on its page."""
    place = value.place
    if place is None:
        return None
    page, box = place
    above = [
        (at[1][1], at[1][0], node)
        for node in headers
        if (at := node.place) is not None
        and at[0] == page
        and at[1][1] < box[1]
        and at[1][0] < box[2]
    ]
    if not above:
        return None
    lowest = max(top for top, _, _ in above)
    return max(((left, node) for top, left, node in above if top == lowest), key=lambda p: p[0])[1]


def last_before(value: EntityNode, nodes: Sequence[EntityNode]) -> EntityNode | None:
    """Return the last of these entities that stands before a value in reading order."""
    before = [node for node in nodes if node.position <= value.position]
    return max(before, key=lambda node: node.position, default=None)


def _column(box: Corners, boxes: Iterable[Corners]) -> tuple[float, float]:
    """Return left and right of the column of a box: what overlaps it or each other."""
    left, right = box[0], box[2]
    rest = list(boxes)
    while joined := [b for b in rest if b[0] < right and b[2] > left]:
        left = min(left, *(b[0] for b in joined))
        right = max(right, *(b[2] for b in joined))
        rest = [b for b in rest if b not in joined]
    return left, right


def _overlap(top: float, bottom: float, other_top: float, other_bottom: float) -> float:
    common = min(bottom, other_bottom) - max(top, other_top)
    least = min(bottom - top, other_bottom - other_top)
    return common / least if least > 0 else 0.0


def _middle(box: Corners) -> float:
    return (box[1] + box[3]) / 2


def _middle_x(box: Corners) -> float:
    return (box[0] + box[2]) / 2
