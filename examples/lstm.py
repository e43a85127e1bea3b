"""An LSTM writes like Alice in Wonderland, character by character.

Shows: nn.LSTM over whole sequences, a state that is carried on while sampling, Adam, gradient clipping.
"""

import math

from book import Book
from curves import Curve
from options import options

import lamina as torch
from lamina import nn, optim
from lamina.nn import functional as F

LENGTH = 64  # characters of one passage


class Writer(nn.Module):
    """Shapes: i64[n, t] -> logits f32[n, t, kinds], and the state after the last character."""

    def __init__(self, kinds: int, width: int = 64, hidden: int = 192):
        super().__init__()
        self.characters = nn.Embedding(kinds, width)
        self.lstm = nn.LSTM(width, hidden, batch_first=True)
        self.head = nn.Linear(hidden, kinds)

    def forward(self, codes: torch.Tensor, state=None):
        y, state = self.lstm(self.characters(codes), state)
        return self.head(y), state


def loss_of(model: Writer, codes: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    logits, _ = model(codes)
    return F.cross_entropy(logits.flatten(0, 1), following.flatten())


@torch.no_grad()
def sample(model: Writer, book: Book, opening: str, length: int, temperature: float = 0.8) -> str:
    codes = book.encode(opening)[None]
    logits, state = model(codes)
    written = [codes]
    for _ in range(length):
        written.append(torch.multinomial((logits[:, -1] / temperature).softmax(-1), 1))
        logits, state = model(written[-1], state)
    return book.decode(torch.cat(written, dim=1)[0])


def main() -> None:
    run = options(__doc__, usual=500, quick=30)
    torch.manual_seed(0)
    book = Book()
    model = Writer(len(book.alphabet))
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters, {len(book.train):,} characters to learn from")

    optimizer = optim.Adam(model.parameters(), lr=5e-3)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=run.steps, eta_min=5e-4)
    curve = Curve("lstm", book.entropy(), "frequencies of characters alone")

    @run.trace
    def step(codes: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        loss = loss_of(model, codes, following)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss

    for _ in range(run.steps):
        curve.add(step(*book.batch(32, LENGTH)).item(), run.steps)

    with torch.no_grad():
        final = loss_of(model, *book.passages(LENGTH)).item()
    print(f"\n{sample(model, book, 'Alice was ', 400)}\n")
    print(f"{final / math.log(2):.2f} bits a character on text it has not seen")
    curve.finish(final, step)


if __name__ == "__main__":
    main()
