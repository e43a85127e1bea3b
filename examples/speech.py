"""A network writes down numbers that a toy voice says, without being told when it says which digit.

Shows: spectra of sound (stft), convolutions, an LSTM in both directions, CTC, sequences of various lengths.
Source: Graves et al., Connectionist Temporal Classification, 2006.
"""

import math
from collections.abc import Callable

from curves import Curve, save
from matplotlib.figure import Figure
from options import Options, options

import lamina as torch
from lamina import nn, optim
from lamina.nn import functional as F

RATE, FRAME, HOP = 4000, 128, 80  # samples a second, in a spectrum, and from one to the next
BANDS, STRIDE, BLANK = FRAME // 2 + 1, 4, 10  # frequencies; spectra to one output; what is no digit
# A digit glides from one of five pairs of tones, in Hz, to another: 0 and 1 between the same, there and back.
TONES = ((300, 900), (400, 1300), (500, 1700), (650, 1100), (800, 1500))
GLIDES = ((0, 1), (1, 0), (2, 3), (3, 2), (0, 4), (4, 0), (1, 2), (2, 1), (3, 4), (4, 3))


def spoken(digits: list[int]) -> torch.Tensor:
    """The sound of a number, in a voice of its own: tones and pauses of any length.  Shapes: f32[samples]."""
    voice, parts = 0.95 + 0.1 * torch.rand(1), [torch.zeros(RATE // 10)]
    for digit in digits:
        length, pause = (int(n) for n in torch.randint(RATE // 6, RATE // 3, (2,)))
        way = torch.linspace(0, 1, length)[:, None]
        start, end = torch.tensor([TONES[tones] for tones in GLIDES[digit]]) * voice
        phase = (2 * math.pi / RATE) * (start + (end - start) * way).cumsum(0)
        loudness = (0.5 + torch.rand(1)) * (math.pi * way[:, 0]).sin()
        parts += [loudness * phase.sin().sum(1), torch.zeros(pause // 3)]
    sound = torch.cat(parts)
    return sound + 0.3 * torch.randn(len(sound))


def recorded(count: int) -> tuple[torch.Tensor, ...]:
    """Spectra f32[count, t, BANDS], outputs of each i64[count], digits i64[count, 6], how many i64[count]."""
    lengths, digits = torch.randint(3, 7, (count,)), torch.randint(10, (count, 6))
    sounds = [spoken(said[:n].tolist()) for said, n in zip(digits, lengths)]
    outputs = torch.tensor([len(sound) // (HOP * STRIDE) + 1 for sound in sounds])
    sound = nn.utils.rnn.pad_sequence(sounds, batch_first=True)
    spectra = torch.stft(sound, FRAME, HOP, window=torch.hann_window(FRAME), return_complex=True)
    return (spectra.abs() + 0.1).log().transpose(1, 2), outputs, digits, lengths


class Listener(nn.Module):
    """Shapes: spectra f32[n, t, BANDS] -> log-probabilities of digits and blank f32[n, ceil(t / 4), 11]."""

    def __init__(self, hidden: int = 64):
        super().__init__()
        self.ear = nn.Sequential(nn.BatchNorm1d(BANDS))
        for size in (BANDS, hidden):
            self.ear.extend([nn.Conv1d(size, hidden, 5, 2, 2), nn.BatchNorm1d(hidden), nn.ReLU()])
        self.lstm = nn.LSTM(hidden, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, 11)

    def forward(self, spectra: torch.Tensor) -> torch.Tensor:
        x, _ = self.lstm(self.ear(spectra.transpose(1, 2)).transpose(1, 2))
        return self.head(x).log_softmax(-1)


def loss_of(model: nn.Module, spectra, outputs, digits, lengths) -> torch.Tensor:
    return F.ctc_loss(model(spectra).transpose(0, 1), digits, outputs, lengths, blank=BLANK)


def train(model: nn.Module, data: tuple[torch.Tensor, ...], run: Options, note) -> Callable:
    """Train on batches of 24 numbers; `note` is told each loss.  Returns the training step."""
    optimizer = optim.Adam(model.parameters(), lr=6e-3)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=run.steps)

    @run.trace
    def step(*batch: torch.Tensor) -> torch.Tensor:
        loss = loss_of(model, *batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss

    for _ in range(run.steps):
        chosen = torch.randint(len(data[0]), (24,))
        note(step(*(x[chosen] for x in data)).item())
    return step


def written(scores: torch.Tensor) -> list[int]:
    """The digits of the likeliest path: repetitions once, blanks left out.  Shapes: f32[t, 11]."""
    return [digit for digit in scores.argmax(-1).unique_consecutive().tolist() if digit != BLANK]


def distance(one: list[int], other: list[int]) -> int:
    """How many digits must be put in, taken out or changed to make one of the other."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        above, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (a != b))
    return row[-1]


@torch.no_grad()
def tested(model: nn.Module, data: tuple[torch.Tensor, ...]) -> tuple[float, str]:
    """The loss, and the share of digits that are wrong."""
    spectra, outputs, digits, lengths = data
    told = zip(model.eval()(spectra), outputs, digits, lengths)
    wrong = sum(distance(written(scores[:t]), said[:n].tolist()) for scores, t, said, n in told)
    return loss_of(model, *data).item(), f"{wrong / lengths.sum().item():.1%} of the digits wrong"


@torch.no_grad()
def drawn(model: nn.Module, spectrum, outputs, said, length) -> Figure:
    """A sound as a picture, and when the network hears which digit."""
    spectrum, scores = spectrum[: STRIDE * (outputs - 1)], model(spectrum[None])[0, :outputs].exp()
    seconds = len(spectrum) * HOP / RATE
    figure = Figure(figsize=(9, 5), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    above.imshow(spectrum.T.cpu().numpy(), origin="lower", aspect="auto", extent=(0, seconds, 0, RATE / 2000))
    above.set(title=f"speech: said {said[:length].tolist()}, written {written(scores)}", ylabel="kHz")
    lines = below.plot(
        torch.arange(len(scores)).cpu().numpy() * STRIDE * HOP / RATE, scores[:, :BLANK].cpu().numpy()
    )
    below.set(xlabel="seconds", ylabel="probability", ylim=(0, 1.05))
    below.legend(lines, range(10), frameon=False, ncols=10, loc="upper center", bbox_to_anchor=(0.5, -0.25))
    return figure


def main() -> None:
    run = options(__doc__, usual=500, quick=240)
    torch.manual_seed(0)
    train_data, test_data = recorded(500), recorded(100)
    glance = nn.Sequential(nn.Linear(BANDS, 128), nn.ReLU(), nn.Linear(128, 11), nn.LogSoftmax(-1))
    alone, alone_test = ((spectra[:, ::STRIDE], *rest) for spectra, *rest in (train_data, test_data))
    train(glance, alone, run, note=lambda loss: None)
    baseline, wrong = tested(glance, alone_test)
    print(f"each spectrum by itself: loss {baseline:.4f}, {wrong}")

    curve = Curve("speech", baseline, "each spectrum by itself, trained alike", measure="CTC loss")
    model = Listener()
    step = train(model, train_data, run, note=lambda loss: curve.add(loss, run.steps))
    final, wrong = tested(model, test_data)
    print(f"the listener: loss {final:.4f}, {wrong}")
    longest = test_data[1].argmax()
    save(drawn(model, *(x[longest] for x in test_data)), "speech-heard")
    curve.finish(final, step)


if __name__ == "__main__":
    main()
