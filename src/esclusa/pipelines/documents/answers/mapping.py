"""Map answers to extractions: one for each value, with what its parents and its place state.

What is not known is None, with a confidence of at most LOW. Nothing is taken from elsewhere in
the document, but what a document states once for all its numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from esclusa.pipelines.documents.answers.entity_tree import AnswerPart, EntityNode, read_tree
from esclusa.pipelines.documents.answers.entity_values import (
    currency_of_node,
    number_of,
    own_scale,
    periods_of,
    scale_of_node,
)
from esclusa.pipelines.documents.answers.joins import (
    by_order,
    column_header,
    header_above,
    last_before,
    row_label,
)
from esclusa.pipelines.documents.boxes import Corners
from esclusa.pipelines.documents.local.numbers import convention_of, is_amount
from esclusa.pipelines.documents.local.periods import Period, date_in

LOW = 0.5
VALUE = "LINE_ITEM_VALUE"
# Fields that stand at the head of a column.
_COLUMN_FIELDS = ("COLUMN_YEAR", "TABLE_COLUMN_HEADER", "REPORTING_PERIOD")
# Fields that a document states once for all its numbers, or for those that follow.
_SHARED_FIELDS = ("CURRENCY", "UNITS_SCALE", "ORG_NAME", "STATEMENT_TITLE")


@dataclass(slots=True)
class ValueRow:
    """A value with the entities that state its fields."""

    value: EntityNode
    number: int
    fields: dict[str, EntityNode]
    extra: dict[str, Any]
    parent_confidence: float | None = None
    unclear: bool = False
    # One of several values of its parent: without a period or heading it is not known which.
    is_one_of_several: bool = False


@dataclass(frozen=True, slots=True)
class MappedAnswer:
    """The fields of each extraction, and warnings about the answer."""

    items: list[dict[str, Any]]
    warnings: list[dict[str, Any]]


def map_answers(
    parts: Sequence[AnswerPart], schema: Mapping[str, str] | None = None
) -> MappedAnswer:
    """Return the extractions of a document from the answers to its calls."""
    top = [node for n, part in enumerate(parts) for node in read_tree(part, n, schema)]
    rows, others = _Rows().collect(top)
    _join_by_place(rows, [node for node in top if not node.children and node.field is not None])
    _number_rows(rows)
    convention = convention_of(row.value.text for row in rows if row.value.text)
    items = [(_value_item(row, convention, top), row.value) for row in rows]
    items += [(_other_item(node), node) for node in others]
    unique = _without_repeats(items)
    cells: dict[str, int] = {}
    for item, _ in unique:
        if item["type"] == VALUE and item["TABLE_CELL_REF"] is None:
            row = item["TABLE_ROW_REF"]
            cells[row] = cells.get(row, 0) + 1
            item["TABLE_CELL_REF"] = f"{row}.c{cells[row]}"
    return MappedAnswer([item for item, _ in unique], _warnings(unique))


@dataclass(slots=True)
class _Rows:
    """Collects the values of a tree, with what their parents state."""

    rows: list[ValueRow] = field(default_factory=list)
    others: list[EntityNode] = field(default_factory=list)

    def collect(self, top: Sequence[EntityNode]) -> tuple[list[ValueRow], list[EntityNode]]:
        for node in top:
            if node.children:
                self._collect_below(node, {}, {})
            elif node.field == VALUE:
                self.rows.append(ValueRow(node, len(self.rows), {}, {}))
            else:
                self.others.append(node)
        return self.rows, self.others

    def _collect_below(
        self, parent: EntityNode, above: dict[str, EntityNode], extra: dict[str, Any]
    ) -> bool:
        """Add the values below an entity; return whether there are any."""
        leaves = [child for child in parent.children if not child.children]
        values = [child for child in leaves if child.field == VALUE]
        single, several = _by_field(leaves)
        fields = {name: node for name, node in above.items() if name not in several} | single
        extra = extra | _extra_of(leaves)
        found = bool(values)
        number = len(self.rows)
        for value in values:
            named = {value.name: value.text} if value.is_named_by_period else {}
            row = ValueRow(value, number, dict(fields), extra | named, parent.confidence)
            row.is_one_of_several = len(values) > 1 or value.is_named_by_period
            _choose(row, several, leaves, values)
            self.rows.append(row)
        for child in parent.children:
            if child.children:
                found |= self._collect_below(child, fields, extra)
        if not found:
            self.others += [leaf for leaf in leaves if leaf.field is not None]
            if any(leaf.field is None for leaf in leaves):
                self.others.append(parent)
        return found


def _by_field(
    leaves: Sequence[EntityNode],
) -> tuple[dict[str, EntityNode], dict[str, list[EntityNode]]]:
    """Return the fields that are stated once, and those that are stated several times."""
    groups: dict[str, list[EntityNode]] = {}
    for leaf in leaves:
        if leaf.field is not None and leaf.field != VALUE:
            groups.setdefault(leaf.field, []).append(leaf)
    values = sum(leaf.field == VALUE for leaf in leaves)
    # One year beside several values belongs to one of them.
    alone = {
        name
        for name, nodes in groups.items()
        if len(nodes) == 1 and not (name in _COLUMN_FIELDS and values > 1)
    }
    return (
        {name: nodes[0] for name, nodes in groups.items() if name in alone},
        {name: nodes for name, nodes in groups.items() if name not in alone},
    )


def _choose(
    row: ValueRow,
    several: Mapping[str, list[EntityNode]],
    leaves: Sequence[EntityNode],
    values: Sequence[EntityNode],
) -> None:
    """Set the fields of a value of which its parent states several."""
    for name, nodes in several.items():
        if row.value.year is not None and name == "COLUMN_YEAR":
            continue
        if name in ("LINE_ITEM_NAME", "TOTAL_LABEL"):
            joined = row_label(row.value, nodes)
        else:
            joined = column_header(row.value, nodes, values)
        pairs = by_order(leaves, name) if joined.node is None else None
        found = joined.node or (pairs or {}).get(id(row.value))
        if found is not None:
            row.fields[name] = found
        else:
            row.unclear = True


def _extra_of(leaves: Sequence[EntityNode]) -> dict[str, Any]:
    """Return the children that stand for no field, by their names."""
    extra: dict[str, Any] = {}
    for leaf in leaves:
        if leaf.field is not None:
            continue
        if leaf.name in extra:
            before = extra[leaf.name]
            extra[leaf.name] = [*(before if isinstance(before, list) else [before]), leaf.text]
        else:
            extra[leaf.name] = leaf.text
    return extra


def _join_by_place(rows: Sequence[ValueRow], flat: Sequence[EntityNode]) -> None:
    """Set labels, headers and sections that stand beside and above values, as entities alone."""
    by_field: dict[str, list[EntityNode]] = {}
    for node in flat:
        by_field.setdefault(str(node.field), []).append(node)
    values = [row.value for row in rows]
    labels = [*by_field.get("LINE_ITEM_NAME", ()), *by_field.get("TOTAL_LABEL", ())]
    for row in rows:
        if not {"LINE_ITEM_NAME", "TOTAL_LABEL"} & row.fields.keys():
            joined = row_label(row.value, labels)
            row.unclear |= joined.unclear
            if joined.node is not None:
                row.fields[str(joined.node.field)] = joined.node
        for name in ("COLUMN_YEAR", "TABLE_COLUMN_HEADER"):
            if name in row.fields or name not in by_field or row.value.year is not None:
                continue
            header = column_header(row.value, by_field[name], values)
            row.unclear |= header.unclear
            if header.node is not None:
                row.fields[name] = header.node
        if "SECTION_HEADER" not in row.fields:
            section = header_above(row.value, by_field.get("SECTION_HEADER", ()))
            if section is not None:
                row.fields["SECTION_HEADER"] = section


def _number_rows(rows: Sequence[ValueRow]) -> None:
    """Give values whose label is printed in one place the same number of a row."""
    labels: dict[tuple[int, str | None], list[tuple[EntityNode, int]]] = {}
    for row in rows:
        label = row.fields.get("LINE_ITEM_NAME") or row.fields.get("TOTAL_LABEL")
        if label is None:
            continue
        known = labels.setdefault((label.part, label.text), [])
        same = (number for node, number in known if node is label or _are_in_one_place(node, label))
        number = next(same, None)
        if number is None:
            known.append((label, row.number))
        else:
            row.number = number


def _are_in_one_place(a: EntityNode, b: EntityNode) -> bool:
    if a.place is None or b.place is None or a.place[0] != b.place[0]:
        return False
    return _common(a.place[1], b.place[1]) > 0.5


def _value_item(row: ValueRow, convention: Any, top: Sequence[EntityNode]) -> dict[str, Any]:
    value, stated = row.value, row.fields
    texts = {name: node.text for name, node in stated.items()}
    year, ends, unclear = _period(row, top)
    shared = {
        name: stated.get(name) or last_before(value, _named(top, name)) or _only(_named(top, name))
        for name in _SHARED_FIELDS
    }
    label = texts.get("LINE_ITEM_NAME") or texts.get("TOTAL_LABEL")
    confidence = value.confidence if value.confidence is not None else row.parent_confidence
    is_any = row.is_one_of_several and year is None and "TABLE_COLUMN_HEADER" not in stated
    if unclear or row.unclear or is_any or label is None:
        confidence = min(LOW, LOW if confidence is None else confidence)
    units = shared["UNITS_SCALE"]
    money = currency_of_node(value)
    if money is None and shared["CURRENCY"] is not None:
        money = currency_of_node(shared["CURRENCY"])
    return {
        "type": VALUE,
        "LINE_ITEM_NAME": label,
        "LINE_ITEM_VALUE": value.text,
        "value": number_of(value, convention),
        "COLUMN_YEAR": None if year is None else str(year),
        "SECTION_HEADER": texts.get("SECTION_HEADER"),
        "TOTAL_LABEL": texts.get("TOTAL_LABEL"),
        "CURRENCY": money,
        "UNITS_SCALE": own_scale(value) or (None if units is None else scale_of_node(units)),
        "REPORTING_PERIOD": ends,
        "ORG_NAME": _text_of(shared["ORG_NAME"]),
        "STATEMENT_TITLE": _text_of(shared["STATEMENT_TITLE"]),
        "TABLE_COLUMN_HEADER": texts.get("TABLE_COLUMN_HEADER"),
        "TABLE_ROW_REF": texts.get("TABLE_ROW_REF") or f"r{row.number}",
        "TABLE_CELL_REF": texts.get("TABLE_CELL_REF"),
        "page_refs": value.page_refs,
        "text_spans": value.text_spans,
        "confidence": confidence,
        "processor_version": value.version,
        "extra": row.extra,
    }


def _period(row: ValueRow, top: Sequence[EntityNode]) -> tuple[int | None, str | None, bool]:
    """Return year and end of a value's column, and whether several contradict each other.

    A reporting period of the whole document gives the day only of a year that it names.
    """
    column: list[Period] = []
    if row.value.year is not None:
        column = [Period(0, 0, int(row.value.year), None)]
    for name in _COLUMN_FIELDS:
        if name in row.fields:
            column += periods_of(row.fields[name])
    years = {period.year for period in column}
    first = row.fields.get("COLUMN_YEAR")
    named = periods_of(first) if first is not None else []
    if first is not None and not named:  # a comparison belongs to no period
        return None, None, False
    year = column[0].year if column else None
    if year is None:
        return None, None, False
    if not named and row.value.year is None and len(years) > 1:
        return None, None, True
    ends = {p.ends for p in column if p.ends is not None and p.ends.year == year}
    if not ends:
        whole = [p for node in _named(top, "REPORTING_PERIOD") for p in periods_of(node)]
        ends = {p.ends for p in whole if p.ends is not None and p.year == year}
        if len(whole) > 1 and not ends:
            ends = _same_day(whole, year)
    return year, max(ends).isoformat() if len(ends) == 1 else None, len(ends) > 1


def _same_day(whole: Sequence[Period], year: int) -> set[Any]:
    """Return the day in this year, if a text names the year beside one date: 31 March 2024, 2023.

    Other dates name their own day.
    """
    dates = [period.ends for period in whole if period.ends is not None]
    if len(dates) == 1 and any(p.year == year for p in whole):
        return {date_in(year, dates[0].month, dates[0].day)}
    return set()


def _named(top: Sequence[EntityNode], name: str) -> list[EntityNode]:
    return [node for node in top if node.field == name and not node.children]


def _only(nodes: Sequence[EntityNode]) -> EntityNode | None:
    """Return an entity if all of them have the same text."""
    return nodes[0] if nodes and len({node.text for node in nodes}) == 1 else None


def _text_of(node: EntityNode | None) -> str | None:
    return None if node is None else node.text


def _other_item(node: EntityNode) -> dict[str, Any]:
    """Return an entity that is not a value: a field alone, or one of the processor's own."""
    stated: dict[str, Any] = {}
    if node.field == "CURRENCY":
        stated["CURRENCY"] = currency_of_node(node)
    elif node.field == "UNITS_SCALE":
        stated["UNITS_SCALE"] = scale_of_node(node)
    elif node.field in ("COLUMN_YEAR", "REPORTING_PERIOD"):
        stated[node.field] = _printed_period(node)
    elif node.field is not None:
        stated[node.field] = node.text
    extra = {} if node.field is not None else {node.name: node.text}
    return {
        "type": node.field or node.name,
        **stated,
        "page_refs": node.page_refs,
        "text_spans": node.text_spans,
        "confidence": node.confidence,
        "processor_version": node.version,
        "extra": extra | _extra_of(node.children),
    }


def _printed_period(node: EntityNode) -> str | None:
    found = periods_of(node)
    if node.field == "COLUMN_YEAR":
        return str(found[0].year) if found else None
    dates = [period.ends for period in found if period.ends is not None]
    return dates[0].isoformat() if dates else node.text


# Parts that share a page


def _without_repeats(
    items: Sequence[tuple[dict[str, Any], EntityNode]],
) -> list[tuple[dict[str, Any], EntityNode]]:
    """Leave out what two parts answered about the page that both have.

    The one that states more is kept; of equal ones the first.
    """
    kept: list[tuple[dict[str, Any], EntityNode]] = []
    by_page: dict[tuple[str, int], list[int]] = {}
    for item, node in items:
        place = node.place
        key = (item["type"], -1 if place is None else place[0])
        twin = next(
            (
                n
                for n in by_page.get(key, ())
                if place is not None
                if kept[n][1].part != node.part and _is_same(kept[n][1], node)
            ),
            None,
        )
        if twin is None:
            by_page.setdefault(key, []).append(len(kept))
            kept.append((item, node))
        elif _stated(item) > _stated(kept[twin][0]):
            kept[twin] = (item, node)
    return kept


def _is_same(kept: EntityNode, node: EntityNode) -> bool:
    return kept.text == node.text and _are_in_one_place(kept, node)


def _common(a: Corners, b: Corners) -> float:
    """Return intersection over union of two boxes."""
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if wide <= 0 or high <= 0:
        return 0.0
    both = wide * high
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def _stated(item: Mapping[str, Any]) -> tuple[int, float]:
    known = sum(value is not None for name, value in item.items() if name.isupper())
    return known, item.get("confidence") or 0.0


def _warnings(items: Sequence[tuple[dict[str, Any], EntityNode]]) -> list[dict[str, Any]]:
    """Warn if the answer has numbers and no line item."""
    if any(item["type"] == VALUE for item, _ in items):
        return []
    numbers = sorted({item["type"] for item, node in items if _is_number(node)})
    if not numbers:
        return []
    names = ", ".join(numbers[:10])
    return [
        {
            "code": "no_line_items",
            "message": f"the answer has numbers and no line item: {names}; name them in "
            "DOCUMENTAI_FIELDS",
        }
    ]


def _is_number(node: EntityNode) -> bool:
    return any(_numbers(node))


def _numbers(node: EntityNode) -> Iterator[bool]:
    if node.children:
        for child in node.children:
            yield from _numbers(child)
    elif node.field in (None, VALUE):
        money = "moneyValue" in node.normal or "floatValue" in node.normal
        yield money or is_amount("".join((node.text or "").split()))
