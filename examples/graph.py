"""A graph network reads digits of which it is told five of each kind: from neighbours it learns the others.

Shows: messages along edges (gather, index_add), a full batch, few labels, what the hidden layer looks like.
Source: Kipf and Welling, Semi-Supervised Classification with Graph Convolutional Networks, 2017.
"""

from collections.abc import Callable

from curves import Curve, save
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from options import Options, options
from sklearn.datasets import load_digits

import lamina as torch
from lamina import nn, optim
from lamina.nn import functional as F

NEIGHBOURS, TOLD = 8, 5  # edges from each image; labels of each digit


class Graph:
    """Edges between near points, both ways, and from each to itself, with weights D^-1/2 (A + I) D^-1/2."""

    def __init__(self, points: torch.Tensor):
        points = F.normalize(points)
        likeness = points @ points.T
        nearest = likeness.topk(NEIGHBOURS + 1).indices  # nearest to each point is the point itself
        joined = torch.zeros_like(likeness).scatter_(1, nearest, 1.0)
        self.source, self.target = torch.maximum(joined, joined.T).nonzero().T.contiguous()
        scale = torch.bincount(self.target).rsqrt()
        self.weight = (scale[self.source] * scale[self.target])[:, None]

    def spread(self, x: torch.Tensor) -> torch.Tensor:
        """Each node gets the weighted sum of its neighbours.  Shapes: f32[n, d] -> the same."""
        return torch.zeros_like(x).index_add(0, self.target, self.weight * x[self.source])


class GCN(nn.Module):
    """Two linear layers; what they give is spread over the graph, if there is one.

    Shapes: f32[n, 64] -> logits f32[n, 10].
    """

    def __init__(self, graph: Graph | None, hidden: int = 32):
        super().__init__()
        self.first, self.second = nn.Linear(64, hidden), nn.Linear(hidden, 10)
        self.dropout = nn.Dropout(0.5)
        self.spread = graph.spread if graph else nn.Identity()

    def hidden(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.spread(self.first(self.dropout(x))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.spread(self.second(self.dropout(self.hidden(x))))


def train(
    model: GCN, images: torch.Tensor, told: torch.Tensor, labels: torch.Tensor, run: Options, note
) -> Callable:
    """Train on the labels of the images `told`; `note` is told each loss.  Returns the training step."""
    optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

    @run.trace
    def step() -> torch.Tensor:
        loss = F.cross_entropy(model(images)[told], labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(run.steps):
        note(step().item())
    return step


def tested(
    model: GCN, images: torch.Tensor, others: torch.Tensor, labels: torch.Tensor
) -> tuple[float, float]:
    """Loss and accuracy on images whose labels were not told."""
    model.eval()
    with torch.no_grad():
        logits = model(images)[others]
    return F.cross_entropy(logits, labels).item(), (logits.argmax(1) == labels).float().mean().item()


def drawn(hidden: torch.Tensor, graph: Graph, digits: torch.Tensor, told: torch.Tensor) -> Figure:
    """The hidden layer in the plane of its two widest directions, with the edges."""
    centred = hidden - hidden.mean(0)
    places = (centred @ torch.linalg.svd(centred, full_matrices=False).Vh[:2].T).cpu().numpy()
    ends = torch.stack([graph.source, graph.target], dim=1).cpu().numpy()
    lines = LineCollection(places[ends], colors="#999999", linewidths=0.2, alpha=0.3, zorder=1)
    figure = Figure(figsize=(7.5, 6), layout="constrained")
    axes = figure.subplots()
    axes.add_collection(lines)
    dots = axes.scatter(*places.T, c=digits.cpu().numpy(), cmap="tab10", vmin=-0.5, vmax=9.5, s=9, zorder=2)
    circles = {"facecolors": "none", "edgecolors": "black", "zorder": 3, "label": "label told"}
    axes.scatter(*places[told.cpu().numpy()].T, s=60, **circles)
    figure.colorbar(dots, ticks=range(10), label="digit")
    axes.set(title="graph: the hidden layer, with edges between similar images", xticks=[], yticks=[])
    axes.legend(loc="upper right")
    return figure


def main() -> None:
    run = options(__doc__, usual=300, quick=40)
    torch.manual_seed(0)
    data = load_digits()
    images = torch.tensor(data.data / 16, dtype=torch.float32)
    digits = torch.tensor(data.target, dtype=torch.int64)
    order = torch.randperm(len(digits))
    told = torch.cat([order[digits[order] == digit][:TOLD] for digit in range(10)])
    others = torch.ones(len(digits)).index_fill(0, told, 0).nonzero()[:, 0]
    graph = Graph(images)
    print(f"{len(images)} images, {len(graph.source)} edges, {len(told)} labels")

    alone = GCN(None)
    train(alone, images, told, digits[told], run, note=lambda loss: None)
    baseline, right = tested(alone, images, others, digits[others])
    print(f"without edges: loss {baseline:.4f}, {right:.1%} of the {len(others)} images without labels")

    curve = Curve("graph", baseline, "the same network without edges")
    model = GCN(graph)
    step = train(model, images, told, digits[told], run, note=lambda loss: curve.add(loss, run.steps))
    final, right = tested(model, images, others, digits[others])
    print(f"with edges: loss {final:.4f}, {right:.1%}")
    with torch.no_grad():
        save(drawn(model.hidden(images), graph, digits, told), "graph-hidden")
    curve.finish(final, step)


if __name__ == "__main__":
    main()
