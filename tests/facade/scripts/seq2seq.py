"""An encoder and a decoder with additive attention learn to reverse digits; teacher forcing."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(0)
torch.manual_seed(0)
SOS, EOS, VOCABULARY, LENGTH = 10, 11, 12, 3


class Encoder(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.embedding, self.gru = nn.Embedding(VOCABULARY, h), nn.GRU(h, h, batch_first=True)

    def forward(self, x):
        return self.gru(self.embedding(x))


class Attention(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.Wa, self.Ua, self.Va = nn.Linear(h, h), nn.Linear(h, h), nn.Linear(h, 1)

    def forward(self, query, keys):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2).unsqueeze(1)
        weights = F.softmax(scores, dim=-1)
        return torch.bmm(weights, keys), weights


class Decoder(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.embedding, self.attention = nn.Embedding(VOCABULARY, h), Attention(h)
        self.gru, self.out = nn.GRU(2 * h, h, batch_first=True), nn.Linear(h, VOCABULARY)

    def forward(self, encoded, hidden, target=None):
        token = torch.empty(encoded.size(0), 1, dtype=torch.long).fill_(SOS)
        outputs, weights = [], []
        for i in range(LENGTH + 1):
            context, w = self.attention(hidden.permute(1, 0, 2), encoded)
            out, hidden = self.gru(torch.cat((self.embedding(token), context), dim=2), hidden)
            outputs.append(self.out(out))
            weights.append(w)
            if target is not None and random.random() < 0.7:
                token = target[:, i].unsqueeze(1)
            else:
                token = outputs[-1].topk(1)[1].squeeze(-1).detach()
        return F.log_softmax(torch.cat(outputs, dim=1), dim=-1), torch.cat(weights, dim=1)


source = torch.randint(0, 10, (64, LENGTH))
target = torch.cat([source.flip(1), torch.full((64, 1), EOS)], dim=1)
encoder, decoder = Encoder(32), Decoder(32)
optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (encoder, decoder)]
criterion = nn.NLLLoss()
losses = []
for _step in range(25):
    for optimizer in optimizers:
        optimizer.zero_grad()
    out, _ = decoder(*encoder(source), target)
    loss = criterion(out.view(-1, out.size(-1)), target.view(-1))
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    losses.append(loss.item())
with torch.no_grad():
    _, weights = decoder(*encoder(source[:2]))
assert torch.allclose(weights.sum(-1), torch.ones(2, LENGTH + 1), atol=1e-5)
print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}")
