"""Operators of ONNX's further domains: steps of optimizers, and what is left of classical models."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

from ....ir.dtypes import float64
from ....runtime import Tensor, ops
from ..declared import Node, OnnxError
from ..element_types import TEXT
from .registry import Value, as_host, as_tensor, operator

TRAINING, CLASSICAL = "ai.onnx.preview.training", "ai.onnx.ml"


# ---- steps of optimizers
def _step(kinds: int) -> Callable[[Callable], Callable]:
    """Enter a rule for a weight, its gradient and its state.  Of several weights they come kind by kind."""

    def enter(rule: Callable) -> Callable:
        def step(node: Node, rate: Tensor, count: Tensor, *operands: Tensor) -> tuple[Value, ...]:
            weights = len(operands) // kinds
            if not weights or len(operands) != weights * kinds:
                raise OnnxError(
                    f"{node.op}: {len(operands)} operands are not {kinds} for each weight", str(node)
                )
            rate, count = rate.reshape(()).to(float64), count.reshape(()).to(float64)
            made = [rule(node, rate, count, *operands[each::weights]) for each in range(weights)]
            return tuple(value.to(operands[0].dtype) for kind in zip(*made, strict=True) for value in kind)

        operator(rule.__name__.title(), domain=TRAINING)(step)
        return rule

    return enter


def _regularised(node: Node, weight: Tensor, grad: Tensor) -> Tensor:
    return node.attr("norm_coefficient", 0.0) * weight + grad


@_step(3)
def adagrad(node: Node, rate: Tensor, count: Tensor, weight: Tensor, grad: Tensor, squares: Tensor) -> tuple:
    rate = rate / (1 + count * node.attr("decay_factor", 0.0))
    grad = _regularised(node, weight, grad)
    squares = squares + grad * grad
    root = ops.FUNCTIONS["sqrt"](squares) + node.attr("epsilon", 1e-6)
    return weight - rate.to(weight.dtype) * grad / root, squares


@_step(4)
def adam(
    node: Node, rate: Tensor, count: Tensor, weight: Tensor, grad: Tensor, mean: Tensor, squares: Tensor
) -> tuple:
    alpha, beta = node.attr("alpha", 0.9), node.attr("beta", 0.999)
    grad = _regularised(node, weight, grad)
    mean = alpha * mean + (1 - alpha) * grad
    squares = beta * squares + (1 - beta) * grad * grad
    root = ops.FUNCTIONS["sqrt"](squares) + node.attr("epsilon", 1e-6)
    corrected = rate * ops.FUNCTIONS["sqrt"](1 - beta**count) / (1 - alpha**count)
    rate = ops.FUNCTIONS["where"](count > 0, corrected, rate).to(weight.dtype)
    return (1 - node.attr("norm_coefficient_post", 0.0)) * (weight - rate * (mean / root)), mean, squares


@_step(3)
def momentum(
    node: Node, rate: Tensor, count: Tensor, weight: Tensor, grad: Tensor, velocity: Tensor
) -> tuple:
    alpha, mode = node.attr("alpha"), node.attr("mode")
    if mode not in ("standard", "nesterov"):
        raise OnnxError(f"Momentum: the mode is {mode!r}: it is standard or nesterov", str(node))
    grad, rate = _regularised(node, weight, grad), rate.to(weight.dtype)
    share = ops.FUNCTIONS["where"](count > 0, node.attr("beta"), 1.0).to(weight.dtype)
    velocity = alpha * velocity + share * grad
    return weight - rate * (grad + alpha * velocity if mode == "nesterov" else velocity), velocity


# ---- features and labels
@operator("ArrayFeatureExtractor", domain=CLASSICAL, raw=True)
def array_feature_extractor(node: Node, x: Value, at: Value) -> Value:
    places = as_host(at).reshape(-1)
    x = x.reshape((1, *x.shape)) if len(x.shape) == 1 else x
    if isinstance(x, Tensor):
        return ops.FUNCTIONS["index_select"](x, x.ndim - 1, as_tensor(places))
    return np.take(x, places, -1)


@operator("Binarizer", domain=CLASSICAL)
def binarizer(node: Node, x: Tensor) -> Tensor:
    return (x > node.attr("threshold", 0.0)).to(x.dtype)


LABELS = {  # attributes' endings: what they hold, and what stands for all that has no entry
    "strings": (object, "default_string", "_Unused"),
    "int64s": (np.int64, "default_int64", -1),
    "floats": (np.float32, "default_float", -0.0),
}


def _labels(node: Node, of: str) -> tuple[list[Any], np.dtype, Any]:
    """The keys or values of a LabelEncoder, their type, and what stands for others."""
    for ending, (dtype, default, otherwise) in LABELS.items():
        if f"{of}_{ending}" in node.attrs:
            return [*node.attr(f"{of}_{ending}")], np.dtype(dtype), node.attr(default, otherwise)
    held = node.attr(f"{of}_tensor")
    if held is None:
        raise OnnxError(f"LabelEncoder: it has no {of}", str(node))
    default = node.attr("default_tensor")
    otherwise = LABELS[{"O": "strings", "f": "floats"}.get(held.dtype.kind, "int64s")][2]
    return held.reshape(-1).tolist(), held.dtype, otherwise if default is None else default.reshape(-1)[0]


def _label_table(node: Node, x: np.ndarray) -> tuple[dict, np.dtype, Any]:
    if node.opset < 2:
        names = node.attr("classes_strings", ())
        if x.dtype == TEXT:
            places = {name: at for at, name in enumerate(names)}
            return places, np.dtype(np.int64), node.attr("default_int64", -1)
        return dict(enumerate(names)), TEXT, node.attr("default_string", "_Unused")
    (keys, _, _), (values, dtype, otherwise) = _labels(node, "keys"), _labels(node, "values")
    if len(keys) != len(values):
        raise OnnxError(f"LabelEncoder: {len(keys)} keys and {len(values)} values", str(node))
    return {_key(key): value for key, value in zip(keys, values, strict=True)}, dtype, otherwise


def _key(value: Any) -> Any:
    return value if value == value else None  # NaNs are all one


@operator("LabelEncoder", domain=CLASSICAL, raw=True)
def label_encoder(node: Node, x: Value) -> Value:
    held = as_host(x)
    table, dtype, otherwise = _label_table(node, held)
    made = np.empty(held.size, dtype)
    made[:] = [table.get(_key(each), otherwise) for each in held.reshape(-1).tolist()]
    return as_tensor(made.reshape(held.shape))


# ---- trees
TESTS = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)  # by nodes' modes
MEMBER = len(TESTS)
LARGEST = 1 << 31  # elements of a result
AVERAGE, SUM, LEAST, MOST = range(4)


class _Trees:
    """The nodes of a TreeEnsemble, checked: what they point to is there."""

    def __init__(self, node: Node, features: int):
        self.node = node
        self.splits = node.attr("nodes_splits").reshape(-1)
        count = self.splits.size
        self.weights = node.attr("leaf_weights").reshape(-1)
        self.targets = self.ids("leaf_targetids", self.weights.size, 1 << 31)
        self.modes = self.ids("nodes_modes", count, MEMBER + 1)
        self.features = self.ids("nodes_featureids", count, features)
        self.roots = self.ids("tree_roots", None, count)
        tracks = node.attr("nodes_missing_value_tracks_true")
        self.tracks = np.array([0] * count if tracks is None else tracks, bool)
        self.after, self.ends = zip(*(self.branch(kind, count) for kind in ("false", "true")), strict=True)
        self.members = self.sets()

    def ids(self, name: str, count: int | None, limit: int) -> np.ndarray:
        found = np.array(self.node.attr(name, ()), np.int64).reshape(-1)
        if count is not None and found.size != count:
            raise OnnxError(f"TreeEnsemble: {name} has {found.size} entries, not {count}", str(self.node))
        if found.size and not 0 <= found.min() <= found.max() < limit:
            raise OnnxError(f"TreeEnsemble: {name} is not 0 to {limit - 1} everywhere", str(self.node))
        return found

    def branch(self, kind: str, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Where nodes lead to if their test is of this kind, and whether that is a leaf."""
        ends = self.ids(f"nodes_{kind}leafs", count, 2).astype(bool)
        after = self.ids(f"nodes_{kind}nodeids", count, max(count, self.weights.size))
        if (after >= np.where(ends, self.weights.size, count)).any():
            raise OnnxError(f"TreeEnsemble: nodes_{kind}nodeids names nodes or leaves that are not there")
        return after, ends

    def sets(self) -> dict[int, np.ndarray]:
        """The values that each node of this kind tests for; NaNs part them."""
        testing = np.flatnonzero(self.modes == MEMBER)
        values = self.node.attr("membership_values")
        values = np.empty(0, self.splits.dtype) if values is None else values.reshape(-1)
        parts = np.split(values, np.flatnonzero(np.isnan(values)) + 1)[:-1]
        if len(parts) != testing.size:
            raise OnnxError(f"TreeEnsemble: {len(parts)} sets for {testing.size} nodes", str(self.node))
        return {int(at): part[:-1] for at, part in zip(testing, parts, strict=True)}

    def leaves(self, x: np.ndarray) -> np.ndarray:
        """The leaf of each tree for each row."""
        at = np.broadcast_to(self.roots, (len(x), self.roots.size)).copy()
        rows, ended = np.arange(len(x))[:, None], np.zeros(at.shape, bool)
        for _ in range(self.splits.size):
            if ended.all():
                break
            here = np.where(ended, 0, at)
            holds = self.tested(x[rows, self.features[here]], here)
            at = np.where(ended, at, np.where(holds, self.after[1][here], self.after[0][here]))
            ended |= np.where(holds, self.ends[1][here], self.ends[0][here])
        if not ended.all():
            raise OnnxError("TreeEnsemble: its nodes lead around in a circle", str(self.node))
        return at

    def tested(self, values: np.ndarray, here: np.ndarray) -> np.ndarray:
        modes, splits = self.modes[here], self.splits[here]
        kinds = [modes == mode for mode in range(MEMBER)]
        holds = np.select(kinds, [test(values, splits) for test in TESTS], False)
        for each in np.unique(here[modes == MEMBER]).tolist():
            holds = np.where(here == each, np.isin(values, self.members[each]), holds)
        return holds | np.isnan(values) & self.tracks[here]


def _gathered(weights: np.ndarray, targets: np.ndarray, width: int, how: int) -> np.ndarray:
    """What leaves say, by row and target."""
    if how in (AVERAGE, SUM):
        made, join = np.zeros((len(weights), width)), np.add
        weights = weights / (weights.shape[1] if how == AVERAGE else 1)
    elif how in (LEAST, MOST):
        farthest, join = np.finfo(weights.dtype), (np.minimum if how == LEAST else np.maximum)
        made = np.full((len(weights), width), farthest.max if how == LEAST else farthest.min)
    else:
        raise OnnxError(f"TreeEnsemble: aggregate_function is {how}: it is 0 to 3")
    join.at(made, (np.arange(len(weights))[:, None], targets), weights)
    return made


def _softmax_of_some(x: Tensor) -> Tensor:
    """Softmax, whose sum leaves zeros out, and which leaves them as they are."""
    some = ops.FUNCTIONS["abs"](x) > 1e-7
    scores = ops.FUNCTIONS["softmax"](ops.FUNCTIONS["where"](some, x, float("-inf")), -1)
    return ops.FUNCTIONS["where"](some, scores, 0.0)


TRANSFORMS: tuple[Callable[[Tensor], Tensor], ...] = (  # by post_transform
    lambda x: x,
    lambda x: ops.FUNCTIONS["softmax"](x, -1),
    lambda x: ops.FUNCTIONS["sigmoid"](x),
    _softmax_of_some,
    lambda x: sqrt(2) * ops.FUNCTIONS["erfinv"](2 * x - 1),
)


@operator("TreeEnsemble", domain=CLASSICAL, raw=True)
def tree_ensemble(node: Node, x: Value) -> Tensor:
    rows = as_host(x)
    if rows.ndim != 2:
        raise OnnxError(f"TreeEnsemble: its input is of rows of features, not {[*rows.shape]}", str(node))
    trees = _Trees(node, rows.shape[1])
    width = node.attr("n_targets", int(trees.targets.max(initial=-1)) + 1)
    transform = node.attr("post_transform", 0)
    if not trees.targets.max(initial=-1) < width <= LARGEST // max(len(rows), 1):
        raise OnnxError(f"TreeEnsemble: {width} targets, of which {trees.targets.max(initial=-1)} is named")
    if not 0 <= transform < len(TRANSFORMS):
        raise OnnxError(f"TreeEnsemble: post_transform is {transform}, and not 0 to 4", str(node))
    leaves = trees.leaves(rows)
    made = _gathered(
        trees.weights[leaves], trees.targets[leaves], width, node.attr("aggregate_function", SUM)
    )
    return TRANSFORMS[transform](as_tensor(made.astype(rows.dtype)))
