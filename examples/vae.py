"""A variational autoencoder learns to draw handwritten digits.

Shows: sampling with gradients (the reparameterisation trick), a loss of two parts, a generative model.
Source: Kingma and Welling, Auto-Encoding Variational Bayes, 2013.
"""

from curves import Curve, save, sheet
from options import options
from sklearn.datasets import load_digits

import lamina as torch
from lamina import nn, optim
from lamina.nn import functional as F

CODES = 8  # numbers that an image is reduced to


class VAE(nn.Module):
    """Shapes: f32[n, 64] -> logits of pixels f32[n, 64], mean and log-variance of codes f32[n, CODES]."""

    def __init__(self, hidden: int = 256):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.SiLU(), nn.Linear(hidden, 2 * CODES))
        self.decoder = nn.Sequential(
            nn.Linear(CODES, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 64)
        )

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, log_variance = self.encoder(images).chunk(2, dim=1)
        codes = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        return self.decoder(codes), mean, log_variance


def loss_of(model: VAE, images: torch.Tensor) -> torch.Tensor:
    """An upper bound of the nats that describe an image: those of its pixels, and those of its codes."""
    logits, mean, log_variance = model(images)
    pixels = F.binary_cross_entropy_with_logits(logits, images, reduction="sum")
    codes = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum()
    return (pixels + codes) / len(images)


def main() -> None:
    run = options(__doc__, usual=4000, quick=200)
    torch.manual_seed(0)
    images = torch.tensor(load_digits().data / 16, dtype=torch.float32)
    images = images[torch.randperm(len(images))]
    train, test = images[:1400], images[1400:]

    average = train.mean(0).clamp(1e-4, 1 - 1e-4).expand(test.shape)
    baseline = F.binary_cross_entropy(average, test, reduction="sum").item() / len(test)
    curve = Curve("vae", baseline, "each pixel by its mean alone")
    model = VAE()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=run.steps)

    @run.trace
    def step(images: torch.Tensor) -> torch.Tensor:
        loss = loss_of(model, images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    for _ in range(run.steps):
        curve.add(step(train[torch.randint(len(train), (128,))]).item(), run.steps)

    with torch.no_grad():
        final = loss_of(model, test).item()
        drawn = model.decoder(torch.randn(60, CODES)).sigmoid()
    title = "vae: digits that nobody wrote, decoded from random codes"
    save(sheet(drawn.view(60, 8, 8).cpu().numpy(), 12, title), "vae-samples")
    curve.finish(final, step)


if __name__ == "__main__":
    main()
