"""A Transformer encoder with sinusoidal positions and a padding mask; a warm-up schedule."""

import math

import torch
from torch import Tensor, nn


class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, dropout: float = 0.1, max_len: int = 100):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x + self.pe[: x.size(0)])


class Classifier(nn.Module):
    def __init__(self, ntoken, d_model, nhead, d_hid, nlayers):
        super().__init__()
        self.embedding, self.d_model = nn.Embedding(ntoken, d_model), d_model
        self.pos = PositionalEncoding(d_model)
        layer = nn.TransformerEncoderLayer(
            d_model, nhead, d_hid, dropout=0.1, activation="gelu", norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, nlayers, enable_nested_tensor=False)
        self.linear = nn.Linear(d_model, 2)
        self.embedding.weight.data.uniform_(-0.1, 0.1)
        self.linear.bias.data.zero_()

    def forward(self, src, pad):
        x = self.pos(self.embedding(src) * math.sqrt(self.d_model))
        x = self.encoder(x, src_key_padding_mask=pad)
        keep = (~pad).t().unsqueeze(-1).float()
        return self.linear((x * keep).sum(0) / keep.sum(0).clamp(min=1e-9))


torch.manual_seed(0)
src = torch.randint(1, 20, (10, 64))
lengths = torch.randint(4, 11, (64,))
pad = torch.arange(10)[None, :] >= lengths[:, None]
y = (src[0] > 10).long()
src = src.masked_fill(pad.T, 0)
model = Classifier(20, 16, 2, 32, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_lambda=lambda s: min(1.0, (s + 1) / 10))
losses = []
for _step in range(30):
    model.train()
    loss = nn.functional.cross_entropy(model(src, pad), y)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    warm.step()
    losses.append(loss.item())
model.eval()
with torch.no_grad():
    changed = src.clone()
    changed[pad.T] = 7  # what is masked does not count
    assert torch.allclose(model(src, pad), model(changed, pad), atol=1e-5)
print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}")
