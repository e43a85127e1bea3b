"""Programs over sequences: transformers, recurrent networks, decoding, alignment."""

import math

from . import program


def _block(torch, width, heads):
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = heads
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x, cache=None):
            B, T, C = x.shape
            q, k, v = self.qkv(self.ln1(x)).chunk(3, dim=-1)
            q, k, v = (y.view(B, T, self.heads, C // self.heads).transpose(1, 2) for y in (q, k, v))
            if cache is not None:
                if "k" in cache:
                    k, v = torch.cat([cache["k"], k], 2), torch.cat([cache["v"], v], 2)
                cache["k"], cache["v"] = k, v
            y = F.scaled_dot_product_attention(q, k, v, is_causal=T > 1)
            x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
            return x + self.mlp(self.ln2(x))

    return Block()


def _gpt(torch, vocab=64, width=32, layers=2, context=32):
    nn = torch.nn

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tok, self.pos = nn.Embedding(vocab, width), nn.Embedding(context, width)
            self.blocks = nn.ModuleList([_block(torch, width, 4) for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

        def forward(self, idx, caches=None, start=0):
            x = self.tok(idx) + self.pos(torch.arange(start, start + idx.shape[1]))
            for i, block in enumerate(self.blocks):
                x = block(x, None if caches is None else caches[i])
            return self.head(self.norm(x))

    return GPT()


@program
def gpt(torch, trace):
    F = torch.nn.functional
    model = _gpt(torch)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95))
    tokens = torch.randint(0, 64, (8, 33))

    def learning_rate(it, warm=5, total=50):
        if it < warm:
            return 3e-4 * (it + 1) / warm
        return 3e-5 + 0.5 * (1 + math.cos(math.pi * (it - warm) / total)) * 2.7e-4

    @trace
    def train(x, y, it):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(it)
        logits = model(x)
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), y.reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item(), norm.item()

    return lambda i: train(tokens[:, :-1], tokens[:, 1:], i)[0]


@program
def gpt_with_cache(torch, trace):
    model = _gpt(torch).eval()

    @trace
    @torch.no_grad()
    def next_token(idx, caches, start):
        logits = model(idx, caches, start)[:, -1] / 0.8
        return torch.argmax(logits, dim=-1, keepdim=True)

    def step(i):
        caches = [{} for _ in model.blocks]
        idx, start = torch.tensor([[1, 2, 3, 4]]), 0
        produced = []
        for _ in range(8):
            token = next_token(idx, caches, start)
            start += idx.shape[1]
            idx = token
            produced.append(token.item())
        return sum(produced)

    return step


@program
def bert(torch, trace):
    nn, F = torch.nn, torch.nn.functional

    class Bert(nn.Module):
        def __init__(self, vocab=100, width=32):
            super().__init__()
            self.tok, self.pos = nn.Embedding(vocab, width), nn.Parameter(torch.zeros(1, 16, width))
            layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.1, batch_first=True)
            self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(width, vocab)

        def forward(self, ids, mask):
            x = self.tok(ids) + self.pos
            return self.head(self.encoder(x, src_key_padding_mask=mask))

    model = Bert()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / 10, 1.0))
    ids = torch.randint(4, 100, (8, 16))
    padding = torch.arange(16)[None, :] >= torch.randint(8, 17, (8, 1))

    @trace
    def train(ids, padding):
        model.train()
        labels = ids.clone()
        masked = torch.rand(ids.shape) < 0.15
        labels[~masked] = -100
        inputs = torch.where(masked, torch.full_like(ids, 3), ids)
        loss = F.cross_entropy(model(inputs, padding).transpose(1, 2), labels, ignore_index=-100)
        loss.backward()
        optimizer.step()
        warm.step()
        optimizer.zero_grad()
        return loss

    return lambda i: train(ids, padding).item()


@program
def seq2seq_beam_search(torch, trace):
    nn = torch.nn
    embed, encoder = nn.Embedding(20, 16), nn.GRU(16, 32, batch_first=True)
    cell, head = nn.GRUCell(16, 32), nn.Linear(32, 20)
    source = torch.randint(0, 20, (1, 10))

    @trace
    @torch.no_grad()
    def encode(source):
        _, hidden = encoder(embed(source))
        return hidden[0]

    @trace
    @torch.no_grad()
    def extend(tokens, hidden, scores):
        hidden = cell(embed(tokens), hidden)
        total = scores[:, None] + torch.log_softmax(head(hidden), -1)
        best, at = total.reshape(-1).topk(4)
        beams = torch.div(at, 20, rounding_mode="floor")
        return at % 20, hidden[beams], best, beams

    def step(i):
        hidden = encode(source).expand(4, -1).contiguous()
        tokens, scores = torch.zeros(4, dtype=torch.long), torch.tensor([0.0, -1e9, -1e9, -1e9])
        paths = [[] for _ in range(4)]
        for _ in range(6):
            tokens, hidden, scores, beams = extend(tokens, hidden, scores)
            paths = [paths[b] + [t] for b, t in zip(beams.tolist(), tokens.tolist())]
        return scores.max().item()

    return step


@program
def seq2seq_attention(torch, trace):
    nn, F = torch.nn, torch.nn.functional

    class Seq2Seq(nn.Module):
        def __init__(self):
            super().__init__()
            self.src, self.tgt = nn.Embedding(20, 16), nn.Embedding(20, 16)
            self.encoder, self.cell = nn.LSTM(16, 24, batch_first=True), nn.LSTMCell(16 + 24, 24)
            self.out = nn.Linear(48, 20)

        def forward(self, source, target):
            memory, (h, c) = self.encoder(self.src(source))
            h, c, context, outputs = h[0], c[0], memory.mean(1), []
            for t in range(target.size(1)):
                h, c = self.cell(torch.cat([self.tgt(target[:, t]), context], 1), (h, c))
                weights = F.softmax(torch.bmm(memory, h.unsqueeze(2)).squeeze(2), dim=1)
                context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
                outputs.append(self.out(torch.cat([h, context], 1)))
            return torch.stack(outputs, dim=1)

    model = Seq2Seq()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    source, target = torch.randint(0, 20, (8, 7)), torch.randint(0, 20, (8, 6))

    @trace
    def train(source, target):
        optimizer.zero_grad()
        logits = model(source, target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return lambda i: train(source, target).item()


@program
def packed_lstm(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    embed, lstm = nn.Embedding(50, 16, padding_idx=0), nn.LSTM(16, 24, batch_first=True, bidirectional=True)
    head = nn.Linear(48, 2)
    parameters = [*embed.parameters(), *lstm.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    lengths = torch.tensor([9, 7, 5, 4])
    tokens = torch.randint(1, 50, (4, 9)) * (torch.arange(9)[None] < lengths[:, None])
    labels = torch.tensor([0, 1, 1, 0])

    @trace
    def train(tokens, labels):
        packed = nn.utils.rnn.pack_padded_sequence(embed(tokens), lengths, batch_first=True)
        _, (h, _) = lstm(packed)
        loss = F.cross_entropy(head(torch.cat([h[0], h[1]], dim=1)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return lambda i: train(tokens, labels).item()


@program
def truncated_bptt(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    embed, rnn, head = nn.Embedding(30, 16), nn.LSTM(16, 32, num_layers=2), nn.Linear(32, 30)
    modules = nn.ModuleList([embed, rnn, head])
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.5)
    text = torch.randint(0, 30, (81, 8))
    state = {"hidden": None}

    def repackage(h):
        return h.detach() if torch.is_tensor(h) else tuple(repackage(v) for v in h)

    @trace
    def train(x, y):
        hidden = state["hidden"]
        if hidden is None:
            hidden = (torch.zeros(2, 8, 32), torch.zeros(2, 8, 32))
        hidden = repackage(hidden)
        out, state["hidden"] = rnn(embed(x), hidden)
        loss = F.cross_entropy(head(out).view(-1, 30), y.reshape(-1))
        modules.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(modules.parameters(), 0.25)
        optimizer.step()
        return loss.item()

    def step(i):
        at = (i % 8) * 10
        return train(text[at : at + 10], text[at + 1 : at + 11])

    return step


@program
def ctc(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    model = nn.Sequential(nn.Conv1d(13, 32, 3, padding=1), nn.ReLU(), nn.Conv1d(32, 11, 3, padding=1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, targets = torch.randn(4, 13, 30), torch.randint(1, 11, (4, 8))
    input_lengths, target_lengths = torch.full((4,), 30), torch.tensor([8, 6, 7, 5])

    @trace
    def train(x):
        log_probs = F.log_softmax(model(x).permute(2, 0, 1), dim=-1)
        loss = F.ctc_loss(log_probs, targets, input_lengths, target_lengths, zero_infinity=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return lambda i: train(x).item()


@program
def state_space_scan(torch, trace):
    nn, F = torch.nn, torch.nn.functional

    class Scan(nn.Module):
        def __init__(self, width=16, state=8):
            super().__init__()
            self.log_a = nn.Parameter(torch.log(torch.arange(1, state + 1).float()).repeat(width, 1))
            self.proj, self.out = nn.Linear(width, 2 * state + width), nn.Linear(width, width)
            self.state = state

        def forward(self, u):
            b, c, dt = self.proj(u).split([self.state, self.state, u.shape[-1]], dim=-1)
            dt = F.softplus(dt)
            a = torch.exp(-torch.exp(self.log_a) * dt.unsqueeze(-1))
            bu = (dt * u).unsqueeze(-1) * b.unsqueeze(2)
            h = torch.zeros(u.shape[0], u.shape[2], self.state)
            ys = []
            for t in range(u.shape[1]):
                h = a[:, t] * h + bu[:, t]
                ys.append((h * c[:, t].unsqueeze(1)).sum(-1))
            return self.out(torch.stack(ys, 1))

    model = Scan()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(4, 12, 16)

    @trace
    def train(x):
        loss = F.mse_loss(model(x[:, :-1]), x[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return lambda i: train(x).item()


@program
def word2vec(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    inputs, outputs = nn.Embedding(200, 32), nn.Embedding(200, 32)
    optimizer = torch.optim.Adagrad([*inputs.parameters(), *outputs.parameters()], lr=0.1)
    centers, contexts = torch.randint(0, 200, (64,)), torch.randint(0, 200, (64,))
    frequencies = torch.rand(200) ** 0.75

    @trace
    def train(center, context):
        negative = torch.multinomial(frequencies, 64 * 5, replacement=True).view(64, 5)
        v = inputs(center)
        positive = F.logsigmoid((v * outputs(context)).sum(-1))
        scores = torch.bmm(outputs(negative), v.unsqueeze(-1)).squeeze(-1)
        loss = -(positive + F.logsigmoid(-scores).sum(-1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return lambda i: train(centers, contexts)
