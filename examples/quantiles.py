"""A forecast that says how sure it is: quantiles of the next day, of a series whose noise changes.

Shows: the pinball loss, quantiles that cannot cross, windows as views, coverage of the bands.
Source: Koenker and Bassett, Regression Quantiles, 1978.
"""

import math

from curves import Curve, save
from matplotlib.figure import Figure
from options import options

import lamina as torch
from lamina import nn, optim
from lamina.nn import functional as F

DAY, WEEK = 24, 168  # hours
LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]


def demand(weeks: int) -> torch.Tensor:
    """Hours of a series with days, weeks and a slow drift; noise by the hour, in calm and in wild times."""
    hour = torch.arange(weeks * WEEK, dtype=torch.float32)
    day = 2 * math.pi * hour / DAY
    weekend = (hour % WEEK >= 5 * DAY).float()
    season = 1.2 * day.sin() + 0.5 * (2 * day + 1).sin() - 0.8 * weekend * (1 + 0.5 * day.cos())
    drift = 0.03 * torch.randn(len(hour)).cumsum(0)
    spells = (0.8 * torch.randn(weeks + 1)).repeat_interleave(WEEK)  # how wild each week is,
    wild = spells.unfold(0, WEEK + 1, 1).mean(1)[: len(hour)].exp()  # with slopes in place of steps
    noise = 0.15 * wild * (1 + 0.8 * (day - 2).sin()) * torch.randn(len(hour))
    return season + drift - drift.mean() + noise


class Forecaster(nn.Module):
    """Shapes: a week f32[n, WEEK], hour of the week f32[n] -> f32[n, DAY, levels], sorted quantiles."""

    def __init__(self, hidden: int = 128):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(WEEK + 5, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU()
        )
        self.head = nn.Linear(hidden, DAY * len(LEVELS))

    def forward(self, past: torch.Tensor, hour: torch.Tensor) -> torch.Tensor:
        level = past[:, -DAY:].mean(1, keepdim=True)
        wild = (past[:, -2 * DAY :] - past[:, -3 * DAY : -DAY]).std(1, keepdim=True)
        day, week = 2 * math.pi * hour / DAY, 2 * math.pi * hour / WEEK
        clock = torch.stack([day.sin(), day.cos(), week.sin(), week.cos()], dim=1)
        raw = self.head(self.body(torch.cat([past - level, wild.log(), clock], dim=1)))
        median, steps = raw.view(-1, DAY, len(LEVELS)).split([1, 4], dim=-1)
        median = level[..., None] + median
        # Steps away from the median are positive, so that no two quantiles cross.
        down, up = (wild[..., None] * F.softplus(steps)).chunk(2, dim=-1)
        return torch.cat([median - down.cumsum(-1).flip(-1), median, median + up.cumsum(-1)], dim=-1)


def pinball(quantiles: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Of the 95 % quantile too low costs 19 times what too high does.  Shapes: f32[..., levels], f32[...]."""
    short, levels = truth[..., None] - quantiles, quantiles.new_tensor(LEVELS)
    return torch.maximum(levels * short, (levels - 1) * short).mean()


def covered(quantiles: torch.Tensor, truth: torch.Tensor) -> str:
    """How often the truth is inside of the two bands."""
    shares = [
        ((truth >= quantiles[..., i]) & (truth <= quantiles[..., -1 - i])).float().mean() for i in (0, 1)
    ]
    return f"{shares[0].item():.1%} in the band of 90 %, {shares[1].item():.1%} in that of 50 %"


def drawn(quantiles: torch.Tensor, truth: torch.Tensor) -> Figure:
    """Forecasts of one day each, and what came.  Shapes: f32[days, DAY, levels], f32[days, DAY]."""
    q, days = quantiles.flatten(0, 1).cpu().numpy().T, torch.arange(truth.numel()).cpu().numpy() / DAY
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.fill_between(days, q[0], q[4], color="#b8c9e6", linewidth=0, label="90 % band")
    axes.fill_between(days, q[1], q[3], color="#7d9fd6", linewidth=0, label="50 % band")
    axes.plot(days, q[2], color="#1f5fbf", linewidth=1.5, label="median")
    axes.plot(days, truth.flatten().cpu().numpy(), ".", color="#222222", markersize=3.5, label="what came")
    axes.set(
        title="quantiles: each midnight the next day is forecast", xlabel="day of the test", ylabel="demand"
    )
    axes.set_xticks(range(len(truth) + 1))
    axes.margins(x=0.01)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.13))
    return figure


def main() -> None:
    run = options(__doc__, usual=3000, quick=150)
    torch.manual_seed(0)
    series = demand(weeks=150)
    windows = series.unfold(0, WEEK + DAY, 1)  # one for each hour that a forecast can be made at; a view
    past, future, hour = windows[:, :WEEK], windows[:, WEEK:], torch.arange(len(windows)) % WEEK
    cut = 120 * WEEK
    tested = torch.arange(cut + WEEK, len(windows), DAY)  # no window of the test overlaps one of the training

    # The simple forecast: the same hours a week ago, give or take the errors that this made in training.
    week_ago = past[:, :DAY]
    errors = (future - week_ago)[:cut:DAY].flatten().quantile(torch.tensor(LEVELS))
    naive = week_ago[tested][..., None] + errors
    baseline = pinball(naive, future[tested]).item()
    print(f"as a week ago: pinball loss {baseline:.4f}, {covered(naive, future[tested])}")

    model = Forecaster()
    optimizer = optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=run.steps)
    curve = Curve("quantiles", baseline, "as a week ago, with the errors of that", measure="pinball loss")

    @run.trace
    def step(past: torch.Tensor, hour: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        loss = pinball(model(past, hour), future)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    for _ in range(run.steps):
        chosen = torch.randint(cut, (128,))
        curve.add(step(past[chosen], hour[chosen], future[chosen]).item(), run.steps)

    with torch.no_grad():
        forecast = model(past[tested], hour[tested])
        final = pinball(forecast, future[tested]).item()
    print(f"the network: pinball loss {final:.4f}, {covered(forecast, future[tested])}")
    save(drawn(forecast[:21], future[tested][:21]), "quantiles-bands")
    curve.finish(final, step)


if __name__ == "__main__":
    main()
