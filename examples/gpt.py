"""A small GPT writes like Alice in Wonderland, character by character.

Shows: embeddings, causal attention, AdamW with weight decay on matrices only, warm-up and a cosine schedule,
gradient clipping, sampling; and with --ddp data-parallel training:

    mpiexec -n 4 python examples/gpt.py --ddp     (or: python -m lamina launch -n 4 examples/gpt.py --ddp)

All ranks draw the same batches and take every fourth passage of each, so losses are those of one process.
"""

import math

from book import Book
from curves import Curve
from options import options

import lamina as torch
import lamina.distributed as dist
from lamina import nn, optim
from lamina.nn import functional as F

CONTEXT = 64  # characters the model sees


class Attention(nn.Module):
    """Causal self-attention: a place looks at itself and those before.  Shapes: f32[n, t, d] -> the same."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, d = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(n, t, d))


class Block(nn.Module):
    """Attention, then a perceptron, each added to its input.  Shapes: f32[n, t, d] -> the same."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Shapes: i64[n, t] -> f32[n, t, kinds], the logits of the next character.  t is at most CONTEXT."""

    def __init__(self, kinds: int, width: int = 96, heads: int = 4, layers: int = 3):
        super().__init__()
        self.characters = nn.Embedding(kinds, width)
        self.places = nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, kinds, bias=False)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                # The two products that end on the residual path are many: they start smaller.
                last = name.endswith(("out.weight", "mlp.2.weight"))
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * layers) if last else 1))

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        x = self.characters(codes) + self.places(torch.arange(codes.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def loss_of(model: nn.Module, codes: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(codes).flatten(0, 1), following.flatten())


@torch.no_grad()
def sample(model: GPT, book: Book, opening: str, length: int, temperature: float = 0.8) -> str:
    codes = book.encode(opening)[None]
    for _ in range(length):
        logits = model(codes[:, -CONTEXT:])[:, -1] / temperature
        codes = torch.cat([codes, torch.multinomial(logits.softmax(-1), 1)], dim=1)
    return book.decode(codes[0])


def main() -> None:
    run = options(__doc__, usual=800, quick=25, on_ranks=True)
    torch.manual_seed(0)
    book = Book()
    model = GPT(len(book.alphabet))
    parameters = sum(p.numel() for p in model.parameters())
    rank, ranks, shared = 0, 1, model
    if run.ddp:
        dist.init_process_group()
        rank, ranks = dist.get_rank(), dist.get_world_size()
        shared = nn.parallel.DistributedDataParallel(model)
    if rank == 0:
        print(f"{parameters:,} parameters, {len(book.train):,} characters to learn from, on {ranks} ranks")

    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim != 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95))
    warm = max(1, run.steps // 20)
    schedule = optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda done: min((done + 1) / warm, 0.55 + 0.45 * math.cos(math.pi * min(1, done / run.steps))),
    )
    curve = Curve("gpt", book.entropy(), "frequencies of characters alone")

    @run.trace
    def step(codes: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        loss = loss_of(shared, codes, following)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        loss = loss.detach()
        if run.ddp:
            dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        return loss

    for _ in range(run.steps):
        codes, following = book.batch(24, CONTEXT)
        loss = step(codes[rank::ranks], following[rank::ranks]).item()
        if rank == 0:
            curve.add(loss, run.steps)
    if rank > 0:
        return

    with torch.no_grad():
        final = loss_of(model, *book.passages(CONTEXT)).item()
    print(f"\n{sample(model, book, 'Alice was ', 400)}\n")
    print(f"{final / math.log(2):.2f} bits a character on text it has not seen")
    curve.finish(final, step)


if __name__ == "__main__":
    main()
