"""A book as a sequence of characters, for the language models."""

import math
from collections import Counter
from pathlib import Path

import lamina as torch

TEXT = Path(__file__).parent / "text" / "alice.txt"


class Book:
    """The text in numbers: one for each kind of character.  The last tenth is kept apart to test on."""

    def __init__(self, path: Path = TEXT):
        text = path.read_text(encoding="ascii")
        self.alphabet = sorted(set(text))
        self.number = {c: i for i, c in enumerate(self.alphabet)}
        codes = self.encode(text)
        cut = len(codes) * 9 // 10
        self.train, self.test = codes[:cut], codes[cut:]

    def encode(self, text: str) -> torch.Tensor:
        return torch.tensor([self.number[c] for c in text], dtype=torch.int64)

    def decode(self, codes: torch.Tensor) -> str:
        return "".join(self.alphabet[i] for i in codes.tolist())

    def entropy(self) -> float:
        """The loss, in nats a character, of knowing how frequent each character is and nothing else.

        Measured as the models are: frequencies from the training part, loss on the test part.
        """
        seen, size = Counter(self.train.tolist()), len(self.train) + len(self.alphabet)
        tested = self.test.tolist()
        return -sum(math.log((seen[c] + 1) / size) for c in tested) / len(tested)

    def batch(self, size: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Random training passages, and what follows each character.  Shapes: i64[size, length]."""
        starts = torch.randint(len(self.train) - length, (size, 1))
        at = starts + torch.arange(length)
        return self.train[at], self.train[at + 1]

    def passages(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The test part cut into passages, and what follows each character.  Shapes: i64[n, length]."""
        n = (len(self.test) - 1) // length
        return self.test[: n * length].view(n, length), self.test[1 : n * length + 1].view(n, length)
