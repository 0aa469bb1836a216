"""The layout of a lifecycle: states in layers from left to right, arrows as SVG paths."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from esclusa.model.lifecycle import Lifecycle

# Height of the place where an arrow passes through a layer.
DUMMY = 14
MARGIN = 14
# Distance between the lanes of long arrows that lead back.
LANE = 18
# Distance between the ends of two arrows at one side of a state.
PORT = 13
_SWEEPS = 8


@dataclass
class Node:
    """A state and its place. ``state`` is empty where a long arrow passes through a layer."""

    state: str
    layer: int
    order: float
    width: float
    height: float
    x: float = 0.0
    y: float = 0.0
    before: list[Node] = field(default_factory=list)
    after: list[Node] = field(default_factory=list)

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True)
class Edge:
    """An arrow, with its SVG path."""

    frm: str
    to: str
    path: str
    back: bool


@dataclass(frozen=True)
class Drawing:
    """A finished layout; coordinates are pixels."""

    width: float
    height: float
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


@lru_cache(maxsize=256)
def draw(life: Lifecycle, *, small: bool = False) -> Drawing:
    """The layout of a lifecycle; ``small`` has room for the names of the states only."""
    sizes = (132.0, 38.0, 46.0, 12.0) if small else (160.0, 80.0, 78.0, 22.0)
    return _Layout(life, *sizes).drawing()


class _Layout:
    """Layered graph drawing: layers, order within them, positions, then arrows."""

    def __init__(
        self, life: Lifecycle, least: float, height: float, gap_x: float, gap_y: float
    ) -> None:
        self._life = life
        self._height, self._gap_x, self._gap_y = height, gap_x, gap_y
        self._width = min(216.0, max(least, max(map(_length, life.states)) + 48))
        self._back = _back_edges(life)
        layers = _layers(life, self._back)
        self._nodes = {
            state: Node(state, layers[state], order, self._width, self._height)
            for order, state in enumerate(life.states)
        }
        self._layers: list[list[Node]] = [[] for _ in range(max(layers.values()) + 1)]
        for node in self._nodes.values():
            self._layers[node.layer].append(node)
        self._chains = {
            (a, b): self._chain(a, b) for a, b in self._moves() if (a, b) not in self._back
        }

    def _moves(self) -> list[tuple[str, str]]:
        return [(a, b) for a in self._life.states for b in self._life.targets(a)]

    def _chain(self, frm: str, to: str) -> list[Node]:
        """The nodes of a forward arrow, with a dummy node in each layer between."""
        first, last = self._nodes[frm], self._nodes[to]
        chain = [first]
        for layer in range(first.layer + 1, last.layer):
            dummy = Node("", layer, (first.order + last.order) / 2, self._width, DUMMY)
            self._layers[layer].append(dummy)
            chain.append(dummy)
        chain.append(last)
        for a, b in pairwise(chain):
            a.after.append(b)
            b.before.append(a)
        return chain

    def drawing(self) -> Drawing:
        self._sort()
        self._place()
        top = min(n.y for layer in self._layers for n in layer)
        for layer in self._layers:
            for node in layer:
                node.y += MARGIN - top
        edges = self._edges()
        nodes = tuple(self._nodes.values())
        return Drawing(
            max(n.right for n in nodes) + MARGIN + self._room[1],
            self._bottom + MARGIN,
            nodes,
            tuple(edges),
        )

    def _sort(self) -> None:
        """Order each layer by the mean place of its neighbors, so that few arrows cross."""
        for layer in self._layers:
            layer.sort(key=lambda n: n.order)
        for sweep in range(_SWEEPS):
            forward = sweep % 2 == 0
            for layer in self._layers if forward else reversed(self._layers):
                places = {id(n): float(i) for each in self._layers for i, n in enumerate(each)}
                weights = {}
                for index, node in enumerate(layer):
                    near = node.before if forward else node.after
                    weights[id(node)] = (
                        sum(places[id(n)] for n in near) / len(near) if near else float(index)
                    )
                layer.sort(key=lambda n: (weights[id(n)], n.order))

    def _place(self) -> None:
        left = MARGIN + (24 if any(self._span(a, b) > 1 for a, b in self._back) else 0)
        self._room = (left, 24 if left > MARGIN else 0)
        for number, layer in enumerate(self._layers):
            y = 0.0
            for node in layer:
                node.x = left + number * (self._width + self._gap_x)
                node.y, y = y, y + node.height + self._gap_y
        for sweep in range(_SWEEPS):
            for layer in self._layers if sweep % 2 == 0 else reversed(self._layers):
                for node in layer:
                    near = [*node.before, *node.after] if sweep > 1 else node.before or node.after
                    if near:
                        node.y = sum(n.middle for n in near) / len(near) - node.height / 2
                _separate(layer, self._gap_y)

    def _span(self, frm: str, to: str) -> int:
        return self._nodes[frm].layer - self._nodes[to].layer

    def _edges(self) -> list[Edge]:
        self._ports: dict[tuple[str, str, str, bool], float] = {}
        for node in self._nodes.values():
            self._assign_ports(node)
        edges = []
        lane = max(n.y + n.height for layer in self._layers for n in layer) + LANE
        self._bottom = lane - LANE
        long = sorted((e for e in self._back if self._span(*e) > 1), key=lambda e: self._span(*e))
        for frm, to in self._moves():
            if (frm, to) in self._chains:
                edges.append(
                    Edge(frm, to, self._forward(self._chains[frm, to], frm, to), back=False)
                )
            elif self._span(frm, to) <= 1:
                a, b = self._nodes[frm], self._nodes[to]
                start, end = (
                    (a.x, self._ports[frm, "left", to, True]),
                    (b.right, self._ports[to, "right", frm, True]),
                )
                bend = f"C{_p(start[0] - 34, start[1])} {_p(end[0] + 40, end[1])}"
                edges.append(Edge(frm, to, f"M{_p(*start)} {bend} {_p(*end)}", back=True))
        for number, (frm, to) in enumerate(long):
            y = lane + number * LANE
            edges.append(
                Edge(frm, to, self._under(self._nodes[frm], self._nodes[to], y, number), back=True)
            )
            self._bottom = y
        return edges

    def _assign_ports(self, node: Node) -> None:
        """Spread the ends of arrows along both sides, in the order of their other ends."""
        state = node.state
        sides: dict[str, list[tuple[float, bool, str]]] = {"left": [], "right": []}
        for a, b in self._moves():
            if (a, b) in self._chains:
                chain = self._chains[a, b]
                if a == state:
                    sides["right"].append((chain[1].middle, False, b))
                if b == state:
                    sides["left"].append((chain[-2].middle, False, a))
            elif self._span(a, b) <= 1:
                if a == state:
                    sides["left"].append((self._nodes[b].middle, True, b))
                if b == state:
                    sides["right"].append((self._nodes[a].middle, True, a))
        for side, ends in sides.items():
            ends.sort()
            step = min(PORT, (self._height - 18) / max(1, len(ends) - 1))
            for place, (_, back, other) in enumerate(ends):
                self._ports[state, side, other, back] = (
                    node.middle + (place - (len(ends) - 1) / 2) * step
                )

    def _forward(self, chain: list[Node], frm: str, to: str) -> str:
        points = [(chain[0].right, self._ports[frm, "right", to, False])]
        for dummy in chain[1:-1]:
            points += [(dummy.x, dummy.middle), (dummy.right, dummy.middle)]
        points.append((chain[-1].x, self._ports[to, "left", frm, False]))
        path = f"M{_p(*points[0])}"
        for number, ((x0, y0), (x1, y1)) in enumerate(pairwise(points)):
            bend = (x1 - x0) / 2
            path += (
                f" L{_p(x1, y1)}"
                if number % 2
                else f" C{_p(x0 + bend, y0)} {_p(x1 - bend, y1)} {_p(x1, y1)}"
            )
        return path

    def _under(self, a: Node, b: Node, y: float, number: int) -> str:
        """A long arrow back: along a lane below all states, through the gaps between layers."""
        radius, shift = 9.0, 6.0 * (number % 4)
        low_a = a is max(self._layers[a.layer], key=lambda n: n.y)
        low_b = b is max(self._layers[b.layer], key=lambda n: n.y)
        if low_a:
            x0 = a.x + a.width / 2 + 10 - shift
            path = f"M{_p(x0, a.y + a.height)} L{_p(x0, y - radius)}"
        else:
            x0 = a.right + 16 + shift
            y0 = a.middle + a.height / 4
            path = f"M{_p(a.right, y0)} L{_p(x0 - radius, y0)} Q{_p(x0, y0)} {_p(x0, y0 + radius)}"
            path += f" L{_p(x0, y - radius)}"
        x1 = b.x + b.width / 2 - 10 + shift if low_b else b.x - 16 - shift
        path += f" Q{_p(x0, y)} {_p(x0 - radius, y)} L{_p(x1 + radius, y)}"
        path += f" Q{_p(x1, y)} {_p(x1, y - radius)}"
        if low_b:
            return path + f" L{_p(x1, b.y + b.height)}"
        target = b.middle + b.height / 4
        path += f" L{_p(x1, target + radius)} Q{_p(x1, target)} {_p(x1 + radius, target)}"
        return f"{path} L{_p(b.x, target)}"


def _length(text: str) -> float:
    """The approximate width of a state's name in pixels."""
    return sum(10.0 if c.isupper() else 8.1 for c in text)


def _p(x: float, y: float) -> str:
    return f"{x:.1f},{y:.1f}"


def _separate(layer: list[Node], gap: float) -> None:
    """Push overlapping neighbors apart, half each way, in the same order."""
    for _ in range(len(layer) * 2):
        moved = False
        for a, b in pairwise(layer):
            overlap = a.y + a.height + gap - b.y
            if overlap > 0.5:
                a.y, b.y, moved = a.y - overlap / 2, b.y + overlap / 2, True
        if not moved:
            return
    for a, b in pairwise(layer):
        b.y = max(b.y, a.y + a.height + gap)


def _back_edges(life: Lifecycle) -> frozenset[tuple[str, str]]:
    """The moves that lead back to a state on the path to their source, in declared order."""
    back: set[tuple[str, str]] = set()
    done: set[str] = set()
    path: list[str] = []

    def walk(state: str) -> None:
        path.append(state)
        for target in life.targets(state):
            if target in path:
                back.add((state, target))
            elif target not in done:
                walk(target)
        path.pop()
        done.add(state)

    for state in life.states:
        if state not in done:
            walk(state)
    return frozenset(back)


def _layers(life: Lifecycle, back: frozenset[tuple[str, str]]) -> dict[str, int]:
    """The layer of each state: the longest path from the initial one without moves back."""
    layers = dict.fromkeys(life.states, 0)
    for _ in life.states:
        for a in life.states:
            for b in life.targets(a):
                if (a, b) not in back:
                    layers[b] = max(layers[b], layers[a] + 1)
    return layers
