"""Small networks of tokens and layer norms, each after its paper, in this project's words.

Each takes images [n, 3, h, w] and gives scores [n, classes].
"""

import lamina
import lamina.nn.functional as F
from lamina import nn

CLASSES = 7


# ---- Liu et al., A ConvNet for the 2020s (ConvNeXt), 2022 --------------------------------------------------
class ChannelNorm(nn.LayerNorm):
    """A layer norm over the channels of [n, c, h, w]."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """A depthwise 7x7, an MLP over channels, a scale for each channel, and the residual."""

    def __init__(self, width: int):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.scale = nn.Parameter(lamina.full((width,), 0.1))

    def forward(self, x):
        y = self.mlp(self.depthwise(x).permute(0, 2, 3, 1)) * self.scale
        return x + y.permute(0, 3, 1, 2)


def convnext(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 2, stride=2), ChannelNorm(width, eps=1e-6),
        ConvNeXtBlock(width), ConvNeXtBlock(width),
        ChannelNorm(width, eps=1e-6), nn.Conv2d(width, 2 * width, 2, stride=2),
        ConvNeXtBlock(2 * width),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.LayerNorm(2 * width, eps=1e-6), nn.Linear(2 * width, CLASSES),
    )  # fmt: skip


# ---- Dosovitskiy et al., An image is worth 16x16 words (ViT), 2021 -----------------------------------------
class Attention(nn.Module):
    """Self-attention of [n, t, c] by heads."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, c))


def mlp(width: int, ratio: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width, ratio * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(ratio * width, width)
    )


class EncoderBlock(nn.Module):
    """Norm, attention, residual; norm, MLP, residual."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = Attention(width, heads), mlp(width, 2)

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class ViT(nn.Module):
    """Patches as tokens, one more that gathers what is asked, and learned places."""

    def __init__(self, width: int, heads: int, size: int = 16, patch: int = 4):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.asked = nn.Parameter(0.02 * lamina.randn(1, 1, width))
        self.places = nn.Parameter(0.02 * lamina.randn(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(EncoderBlock(width, heads) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        asked = self.asked.expand(x.shape[0], -1, -1)
        x = self.blocks(lamina.cat([asked, tokens], dim=1) + self.places)
        return self.head(self.norm(x[:, 0]))


# ---- Liu et al., Swin Transformer, 2021 --------------------------------------------------------------------
class WindowAttention(nn.Module):
    """Attention within windows of an image [n, h, w, c], moved by `shift`, with a bias for each offset.

    Where the image was rolled around its edge, neighbours in a window that are none in the image don't see
    each other.
    """

    def __init__(self, width: int, heads: int, size: int, window: int, shift: int):
        super().__init__()
        self.heads, self.window, self.shift = heads, window, shift
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(0.1 * lamina.randn((2 * window - 1) ** 2, heads))
        rows, columns = lamina.meshgrid(lamina.arange(window), lamina.arange(window), indexing="ij")
        places = lamina.stack([rows.flatten(), columns.flatten()])
        offsets = places[:, :, None] - places[:, None, :] + window - 1
        self.register_buffer("offsets", offsets[0] * (2 * window - 1) + offsets[1])
        self.register_buffer("mask", self.regions_apart(size) if shift else None)

    def windows(self, x):
        """[n, h, w, c] -> [n * windows, window * window, c]."""
        n, h, w, c = x.shape
        k = self.window
        return x.view(n, h // k, k, w // k, k, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, k * k, c)

    def regions_apart(self, size: int):
        """-100 where two places of a window come from different sides of the edge, else 0."""
        region = lamina.zeros(1, size, size, 1)
        parts = (slice(0, -self.window), slice(-self.window, -self.shift), slice(-self.shift, None))
        for number, (rows, columns) in enumerate((r, c) for r in parts for c in parts):
            region[:, rows, columns] = number
        region = self.windows(region).squeeze(-1)
        return (region[:, None, :] != region[:, :, None]).float() * -100.0

    def forward(self, x):
        n, h, w, c = x.shape
        if self.shift:
            x = lamina.roll(x, (-self.shift, -self.shift), (1, 2))
        tokens = self.windows(x)
        count, t, _ = tokens.shape
        shape = (count, t, 3, self.heads, c // self.heads)
        q, k, v = self.qkv(tokens).reshape(shape).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1)
        scores = scores + self.bias[self.offsets.view(-1)].view(t, t, self.heads).permute(2, 0, 1)
        if self.mask is not None:
            apart = self.mask.shape[0]
            scores = scores.view(n, apart, self.heads, t, t) + self.mask[:, None].to(x.dtype)
            scores = scores.view(count, self.heads, t, t)
        x = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(count, t, c))
        k = self.window
        x = x.view(n, h // k, w // k, k, k, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        return lamina.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x


class SwinBlock(nn.Module):
    """As an encoder's block, of windows."""

    def __init__(self, width: int, heads: int, size: int, window: int, shift: int):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = WindowAttention(width, heads, size, window, shift), mlp(width, 2)

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Merged(nn.Module):
    """Four neighbours become one of twice the width."""

    def __init__(self, width: int):
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x):
        corners = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.reduce(self.norm(lamina.cat(corners, -1)))


class Swin(nn.Module):
    def __init__(self, width: int, heads: int, size: int = 16):
        super().__init__()
        side = size // 2
        self.patches = nn.Conv2d(3, width, 2, stride=2)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.Sequential(
            SwinBlock(width, heads, side, 4, 0), SwinBlock(width, heads, side, 4, 2),
            Merged(width), SwinBlock(2 * width, heads, side // 2, 4, 0),
        )  # fmt: skip
        self.last, self.head = nn.LayerNorm(2 * width), nn.Linear(2 * width, CLASSES)

    def forward(self, x):
        x = self.norm(self.patches(x).permute(0, 2, 3, 1))
        return self.head(self.last(self.blocks(x)).mean((1, 2)))
