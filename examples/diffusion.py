"""A diffusion model draws the digits that it is asked for, out of noise.

Shows: a noise schedule, embeddings of times and labels, guidance without a classifier, sampling step by step.
Source: Ho et al., Denoising Diffusion Probabilistic Models, 2020; Ho and Salimans, Classifier-Free Diffusion
Guidance, 2022; the schedule of Nichol and Dhariwal, Improved Denoising Diffusion Probabilistic Models, 2021.
"""

import math

from curves import Curve, save, sheet
from options import options
from sklearn.datasets import load_digits

import lamina as torch
from lamina import nn, optim
from lamina.nn import functional as F

TIMES = 100  # steps from an image to noise
ANY = 10  # the label of no digit in particular
at = (torch.arange(TIMES + 1) / TIMES + 0.008) / 1.008 * math.pi / 2
KEPT = (at.cos() / at[0].cos()).square().clamp(1e-3, 0.9999)  # of the image's variance, at each time


class Denoiser(nn.Module):
    """Tell the noise in x.  Shapes: x f32[n, 64], time i64[n], label i64[n] -> f32[n, 64]."""

    def __init__(self, width: int = 256):
        super().__init__()
        self.time = nn.Embedding(TIMES + 1, width)
        self.label = nn.Embedding(ANY + 1, width)
        self.enter = nn.Linear(64, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)
            )
            for _ in range(3)
        )
        self.leave = nn.Linear(width, 64)

    def forward(self, x: torch.Tensor, time: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        told = self.time(time) + self.label(label)
        h = self.enter(x)
        for block in self.blocks:
            h = h + block(h + told)
        return self.leave(h)


def noised(images: torch.Tensor, time: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The images at their times, and the noise in them."""
    noise, kept = torch.randn_like(images), KEPT.to(time.device)[time][:, None]
    return kept.sqrt() * images + (1 - kept).sqrt() * noise, noise


def without_network(train: torch.Tensor, images: torch.Tensor) -> float:
    """The loss of the best guess of each pixel by itself, if it were Gaussian with its mean and variance."""
    mean, variance = train.mean(0), train.var(0)
    time = torch.arange(len(images)) % TIMES + 1
    x, noise = noised(images, time)
    kept = KEPT.to(time.device)[time][:, None]
    guess = (1 - kept).sqrt() * (x - kept.sqrt() * mean) / (kept * variance + 1 - kept)
    return F.mse_loss(guess, noise).item()


@torch.no_grad()
def sample(model: Denoiser, label: torch.Tensor, guidance: float = 1.5) -> torch.Tensor:
    """Start from noise, and take a little of it out at each time.  Shapes: i64[n] -> f32[n, 64]."""
    x = torch.randn(len(label), 64)
    for t in range(TIMES, 0, -1):
        time = torch.full((len(label),), t)
        freely, asked = model(x, time, torch.full_like(label, ANY)), model(x, time, label)
        noise = freely + guidance * (asked - freely)
        image = ((x - (1 - KEPT[t]).sqrt() * noise) / KEPT[t].sqrt()).clamp(-1, 1)
        step = KEPT[t] / KEPT[t - 1]
        mean = (KEPT[t - 1].sqrt() * (1 - step) * image + step.sqrt() * (1 - KEPT[t - 1]) * x) / (1 - KEPT[t])
        variance = (1 - step) * (1 - KEPT[t - 1]) / (1 - KEPT[t])
        x = mean + variance.sqrt() * torch.randn_like(x) if t > 1 else image
    return x


def main() -> None:
    run = options(__doc__, usual=6000, quick=600)
    torch.manual_seed(0)
    data = load_digits()
    images = torch.tensor(data.data / 8 - 1, dtype=torch.float32)  # from -1 to 1
    digits = torch.tensor(data.target, dtype=torch.int64)
    order = torch.randperm(len(images))
    train, test = order[:1400], order[1400:]

    curve = Curve(
        "diffusion", without_network(images[train], images[test]), "each pixel by its mean and variance"
    )
    model = Denoiser()
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=run.steps)

    @run.trace
    def step(images: torch.Tensor, digits: torch.Tensor) -> torch.Tensor:
        time = torch.randint(1, TIMES + 1, (len(images),))
        label = torch.where(torch.rand(len(images)) < 0.1, ANY, digits)  # it learns to draw unasked as well
        x, noise = noised(images, time)
        loss = F.mse_loss(model(x, time, label), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    for _ in range(run.steps):
        chosen = train[torch.randint(len(train), (128,))]
        curve.add(step(images[chosen], digits[chosen]).item(), run.steps)

    with torch.no_grad():
        time = torch.arange(len(test)) % TIMES + 1
        x, noise = noised(images[test], time)
        final = F.mse_loss(model(x, time, digits[test]), noise).item()
    drawn = sample(model, torch.arange(10).repeat(6)) / 2 + 0.5
    save(
        sheet(drawn.view(-1, 8, 8).cpu().numpy(), 10, "diffusion: 0 to 9, drawn six times each"),
        "diffusion-samples",
    )
    curve.finish(final, step)


if __name__ == "__main__":
    main()
