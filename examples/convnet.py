"""A residual convolutional network reads handwritten digits.

Shows: modules of one's own, batch normalisation, dropout, SGD with Nesterov momentum, a cosine schedule,
label smoothing, train and eval modes, and random shifts of the images against overfitting.
"""

import math

from curves import Curve
from options import options
from sklearn.datasets import load_digits

import lamina as torch
from lamina import nn, optim
from lamina.nn import functional as F


class Residual(nn.Module):
    """Add to x what two convolutions make of it.  Shapes: f32[n, c, h, w] -> the same."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(y)))


class ConvNet(nn.Module):
    """Shapes: f32[n, 1, 8, 8] -> f32[n, 10], the logits."""

    def __init__(self, width: int = 24):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.first = Residual(width)
        self.wider = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.second = Residual(2 * width)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(F.relu(self.stem(x)))
        x = self.second(F.relu(self.wider(x)))
        return self.head(self.dropout(x.mean(dim=(2, 3))))


def shifted(images: torch.Tensor) -> torch.Tensor:
    """The images, each moved by a pixel or not, to the left or right."""
    by = torch.randint(-1, 2, (len(images), 1, 1, 1))
    columns = torch.arange(images.shape[-1]) + by
    inside = (columns >= 0) & (columns < images.shape[-1])
    taken = columns.clamp(0, images.shape[-1] - 1).expand(images.shape)
    return torch.where(inside, images.gather(3, taken), 0.0)


def main() -> None:
    run = options(__doc__, usual=600, quick=40)
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target, dtype=torch.int64)
    order = torch.randperm(len(labels))
    train, test = order[:1400], order[1400:]

    model = ConvNet()
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=run.steps)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    curve = Curve("convnet", math.log(10), "any digit is equally likely")

    @run.trace
    def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = criterion(model(shifted(images)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    for _ in range(run.steps):
        chosen = train[torch.randint(len(train), (64,))]
        curve.add(step(images[chosen], labels[chosen]).item(), run.steps)

    model.eval()
    with torch.no_grad():
        logits = model(images[test])
        final = F.cross_entropy(logits, labels[test]).item()
        right = (logits.argmax(1) == labels[test]).float().mean().item()
    print(f"{right:.2%} of {len(test)} test digits")
    curve.finish(final, step)


if __name__ == "__main__":
    main()
