"""Answer `torchvision.ops`: boxes, and the blocks that vision models are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ... import nn, runtime
from ...ir.errors import ArgumentValueError
from ...nn import functional as F
from ...runtime import Tensor

torch: Any = runtime  # whose functions are made of records, and have no types

__all__ = [
    "Conv2dNormActivation",
    "FrozenBatchNorm2d",
    "MLP",
    "Permute",
    "SqueezeExcitation",
    "StochasticDepth",
    "batched_nms",
    "box_area",
    "box_convert",
    "box_iou",
    "clip_boxes_to_image",
    "generalized_box_iou",
    "masks_to_boxes",
    "misc",
    "nms",
    "remove_small_boxes",
    "sigmoid_focal_loss",
    "stochastic_depth",
]


# ---- boxes, [n, 4]: left, top, right, bottom ---------------------------------------------------------------
def box_area(boxes: Tensor) -> Tensor:
    """The area of each box.  Shapes: [n]."""
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def _common(boxes1: Tensor, boxes2: Tensor) -> tuple[Tensor, Tensor]:
    sides = torch.minimum(boxes1[:, None, 2:], boxes2[:, 2:]) - torch.maximum(
        boxes1[:, None, :2], boxes2[:, :2]
    )
    inter = sides.clamp(min=0).prod(-1)
    return inter, box_area(boxes1)[:, None] + box_area(boxes2) - inter


def box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """What two boxes share, as a part of what they cover together.  Shapes: [n, m]."""
    inter, union = _common(boxes1, boxes2)
    return inter / union


def generalized_box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """`box_iou` less the part of the box around both that neither covers.  Shapes: [n, m]."""
    inter, union = _common(boxes1, boxes2)
    sides = torch.maximum(boxes1[:, None, 2:], boxes2[:, 2:]) - torch.minimum(
        boxes1[:, None, :2], boxes2[:, :2]
    )
    around = sides.clamp(min=0).prod(-1)
    return inter / union - (around - union) / around


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The boxes to keep, best first: none covers another of a higher score by more than the threshold."""
    corners = boxes.detach().numpy().astype(np.float64)
    order = np.argsort(-scores.detach().numpy(), kind="stable")
    area = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    kept = []
    while order.size:
        best, order = order[0], order[1:]
        kept.append(int(best))
        low, high = (
            np.maximum(corners[best, :2], corners[order, :2]),
            np.minimum(corners[best, 2:], corners[order, 2:]),
        )
        inter = np.clip(high - low, 0, None).prod(-1)
        order = order[inter <= iou_threshold * (area[best] + area[order] - inter)]
    return torch.as_tensor(np.array(kept, np.int64))


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """`nms` among the boxes of each class."""
    if boxes.numel() == 0:
        return torch.as_tensor(np.empty(0, np.int64))
    apart = idxs.to(boxes.dtype) * (boxes.max() + 1)
    return nms(boxes + apart[:, None], scores, iou_threshold)


def clip_boxes_to_image(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """The boxes, as far as they lie within (height, width)."""
    height, width = size
    x, y = boxes[..., 0::2].clamp(0, width), boxes[..., 1::2].clamp(0, height)
    return torch.stack((x, y), -1).reshape(boxes.shape)


def masks_to_boxes(masks: Tensor) -> Tensor:
    """The box around what each mask covers, of [n, height, width].  Shapes: [n, 4].

    Raises ArgumentValueError for a mask that covers nothing.
    """
    if not masks.numel():
        return masks.new_zeros((0, 4)).float()
    sides = []
    for along in (masks != 0).any(1), (masks != 0).any(2):
        if not along.any(1).all():
            raise ArgumentValueError("masks_to_boxes: each mask covers a pixel at least")
        places = along.int()
        sides.append((places.argmax(1), along.shape[1] - 1 - places.flip(1).argmax(1)))
    (left, right), (top, bottom) = sides
    return torch.stack((left, top, right, bottom), 1).float()


def remove_small_boxes(boxes: Tensor, min_size: float) -> Tensor:
    """The numbers of the boxes whose sides are at least so long."""
    return ((boxes[:, 2:] - boxes[:, :2]) >= min_size).all(-1).nonzero()[:, 0]


def box_convert(boxes: Tensor, in_fmt: str, out_fmt: str) -> Tensor:
    """Boxes spelled otherwise: xyxy, xywh (left, top, sides) or cxcywh (middle, sides)."""
    if in_fmt == "xywh":
        boxes = torch.cat((boxes[..., :2], boxes[..., :2] + boxes[..., 2:]), -1)
    elif in_fmt == "cxcywh":
        boxes = torch.cat((boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2), -1)
    sides = boxes[..., 2:] - boxes[..., :2]
    if out_fmt == "xywh":
        return torch.cat((boxes[..., :2], sides), -1)
    if out_fmt == "cxcywh":
        return torch.cat(((boxes[..., :2] + boxes[..., 2:]) / 2, sides), -1)
    return boxes


def sigmoid_focal_loss(
    inputs: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2, reduction: str = "none"
) -> Tensor:
    """Cross-entropy in which what is certain weighs less.  Source: Lin et al., "Focal loss", 2017."""
    p = inputs.sigmoid()
    loss = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    loss = loss * (1 - (p * targets + (1 - p) * (1 - targets))) ** gamma
    if alpha >= 0:
        loss = (alpha * targets + (1 - alpha) * (1 - targets)) * loss
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


# ---- blocks ------------------------------------------------------------------------------------------------
class FrozenBatchNorm2d(nn.Module):
    """Batch normalisation by numbers that stay as they are."""

    def __init__(self, num_features: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        for name, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            self.register_buffer(name, torch.full((num_features,), value))

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        return x * scale.view(1, -1, 1, 1) + (self.bias - self.running_mean * scale).view(1, -1, 1, 1)

    def __repr__(self) -> str:
        return f"FrozenBatchNorm2d({self.weight.shape[0]}, eps={self.eps})"


def stochastic_depth(input: Tensor, p: float, mode: str, training: bool = True) -> Tensor:
    """Zeros with the probability p: for each "row", or for the whole "batch"; the rest is scaled up."""
    if not training or p == 0.0:
        return input
    size = [input.shape[0] if mode == "row" else 1] + [1] * (input.ndim - 1)
    kept = torch.empty(size, dtype=input.dtype).bernoulli_(1.0 - p)
    return input * (kept / (1.0 - p) if p < 1.0 else kept)


class StochasticDepth(nn.Module):
    """`stochastic_depth`."""

    def __init__(self, p: float, mode: str):
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, input: Tensor) -> Tensor:
        return stochastic_depth(input, self.p, self.mode, self.training)


class Conv2dNormActivation(nn.Sequential):
    """A convolution that keeps the size, a norm and an activation; None leaves one out."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any = 3,
        stride: Any = 1,
        padding: Any = None,
        groups: int = 1,
        norm_layer: Callable | None = nn.BatchNorm2d,
        activation_layer: Callable | None = nn.ReLU,
        dilation: Any = 1,
        inplace: bool | None = True,
        bias: bool | None = None,
    ):
        if padding is None:
            pair = [(n, n) if isinstance(n, int) else n for n in (kernel_size, dilation)]
            sides = tuple((n - 1) // 2 * d for n, d in zip(*pair, strict=True))
            padding = sides[0] if isinstance(kernel_size, int) and isinstance(dilation, int) else sides
        bias = norm_layer is None if bias is None else bias
        layers: list[Any] = [
            nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
        ]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer(**({} if inplace is None else {"inplace": inplace})))
        super().__init__(*layers)
        self.out_channels = out_channels


class SqueezeExcitation(nn.Module):
    """Channels scaled by what their means say."""

    def __init__(
        self,
        input_channels: int,
        squeeze_channels: int,
        activation: Callable = nn.ReLU,
        scale_activation: Callable = nn.Sigmoid,
    ):
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1, self.fc2 = (
            nn.Conv2d(input_channels, squeeze_channels, 1),
            nn.Conv2d(squeeze_channels, input_channels, 1),
        )
        self.activation, self.scale_activation = activation(), scale_activation()

    def forward(self, input: Tensor) -> Tensor:
        return self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(input))))) * input


class MLP(nn.Sequential):
    """Linear layers with norms, activations and dropout between them."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: Sequence[int],
        norm_layer: Callable | None = None,
        activation_layer: Callable | None = nn.ReLU,
        inplace: bool | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ):
        options = {} if inplace is None else {"inplace": inplace}
        layers: list[Any] = []
        for number, width in enumerate(hidden_channels):
            layers.append(nn.Linear(in_channels, width, bias=bias))
            if number < len(hidden_channels) - 1:
                layers += [norm_layer(width)] if norm_layer is not None else []
                layers += [activation_layer(**options)] if activation_layer is not None else []
            layers.append(nn.Dropout(dropout, **options))
            in_channels = width
        super().__init__(*layers)


class Permute(nn.Module):
    """`permute` as a layer."""

    def __init__(self, dims: list[int]):
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(self.dims)


misc = ModuleType("lamina.facade.torchvision.ops.misc", "The blocks, where torchvision has them.")
vars(misc).update(
    {name: value for name, value in list(globals().items()) if isinstance(value, type)},
    ConvNormActivation=Conv2dNormActivation,
)
