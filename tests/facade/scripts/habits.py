"""Parameter groups, accumulation, early stopping, a moving average, hooks, pickles, tied weights."""

import copy
import io
import pickle

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.init import skip_init
from torch.nn.utils.memory_format import convert_conv2d_weight_memory_format

torch.manual_seed(0)
X = torch.randn(128, 10)
Y = X @ torch.randn(10, 1) + 0.1 * torch.randn(128, 1)
model = nn.Sequential()
model.add_module("body", nn.Sequential(nn.Linear(10, 16), nn.Tanh()))
model.add_module("head", nn.Linear(16, 1))
optimizer = torch.optim.Adam(
    [{"params": model.body.parameters(), "lr": 1e-3}, {"params": model.head.parameters()}], lr=1e-2
)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="min", factor=0.5, patience=1)
ema = copy.deepcopy(model)
for p in ema.parameters():
    p.requires_grad_(False)
best, bad, best_state, history = float("inf"), 0, None, []
for _epoch in range(12):
    for i, (xb, yb) in enumerate(zip(X.split(16), Y.split(16), strict=True)):
        loss = F.smooth_l1_loss(model(xb), yb) / 4
        loss.backward()
        if (i + 1) % 4 == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                for average, p in zip(ema.parameters(), model.parameters(), strict=True):
                    average.mul_(0.9).add_(p, alpha=0.1)
    history.append(F.mse_loss(model(X), Y).item())
    scheduler.step(history[-1])
    if history[-1] < best:
        best, bad, best_state = history[-1], 0, copy.deepcopy(model.state_dict())
    else:
        bad += 1
        if bad >= 3:
            break
model.load_state_dict(best_state)
assert F.mse_loss(model(X), Y).item() == best and F.mse_loss(ema(X), Y).item() < history[0]

features, handles = {}, []
for name, module in model.named_modules():
    if isinstance(module, nn.Linear):

        def keep(module, inputs, out, name=name):
            features[name] = out.detach()

        handles.append(module.register_forward_hook(keep))
model(X[:3])
for handle in handles:
    handle.remove()
assert {k: tuple(v.shape) for k, v in features.items()} == {"body.0": (3, 16), "head": (3, 1)}
t = torch.ones(3, requires_grad=True)
t.register_hook(lambda g: g * 2)
(t * 3).sum().backward()
assert t.grad.tolist() == [6, 6, 6]
assert torch.equal(pickle.loads(pickle.dumps(model))(X), model(X))
buffer = io.BytesIO()
torch.save(model.state_dict(), buffer)
buffer.seek(0)
assert list(torch.load(buffer)) == ["body.0.weight", "body.0.bias", "head.weight", "head.bias"]
tied, other = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
tied.weight = other.weight
assert len(list(nn.ModuleList([tied, other]).parameters())) == 1
print(f"loss {history[0]:.6f} -> {best:.6f}")
undrawn = skip_init(nn.Conv2d, 2, 3, 3)
assert convert_conv2d_weight_memory_format(undrawn, torch.channels_last).weight.shape == (3, 2, 3, 3)
