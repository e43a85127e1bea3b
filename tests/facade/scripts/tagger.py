"""Sequences of different lengths: padding, packing, masks; RNN, LSTM and GRU."""

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

torch.manual_seed(1)
sentences = [
    ("the dog ate the apple".split(), ["DET", "NN", "V", "DET", "NN"]),
    ("everybody read that book".split(), ["NN", "V", "DET", "NN"]),
    ("a cat".split(), ["DET", "NN"]),
]
vocabulary, tags = {"<pad>": 0}, {}
for words, kinds in sentences:
    for word in words:
        vocabulary.setdefault(word, len(vocabulary))
    for kind in kinds:
        tags.setdefault(kind, len(tags))
data = [
    (torch.tensor([vocabulary[w] for w in words]), torch.tensor([tags[t] for t in kinds]))
    for words, kinds in sentences
]


def collate(batch):
    x = pad_sequence([s for s, _ in batch], batch_first=True, padding_value=0)
    y = pad_sequence([t for _, t in batch], batch_first=True, padding_value=-100)
    return x, y, torch.tensor([len(s) for s, _ in batch])


class Tagger(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.emb = nn.Embedding(len(vocabulary), 8, padding_idx=0)
        self.rnn = getattr(nn, kind)(8, 8, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.out = nn.Linear(16, len(tags))

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.emb(x), lengths.cpu(), batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x.size(1))
        return self.out(out)


criterion = nn.CrossEntropyLoss(ignore_index=-100)
first, last = 0.0, 0.0
for kind in ("RNN", "LSTM", "GRU"):
    model = Tagger(kind)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _epoch in range(20):
        for x, y, lengths in DataLoader(data, batch_size=3, shuffle=True, collate_fn=collate):
            logits = model(x, lengths)
            loss = criterion(logits.view(-1, logits.size(-1)), y.view(-1))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=5.0)
            optimizer.step()
            losses.append(loss.item())
    assert model.emb.weight.grad[0].abs().sum() == 0
    mask = y.ne(-100)
    print(kind, (logits.argmax(-1)[mask] == y[mask]).float().mean().item())
    first, last = first + losses[0], last + losses[-1]
print(f"loss {first:.6f} -> {last:.6f}")
