"""Linear regression: a loop without modules, then the closed form."""

import torch

torch.manual_seed(0)
true_w, true_b = torch.tensor([2.0, -3.4]), 4.2
X = torch.normal(0, 1, (500, 2))
y = X @ true_w + true_b
y += torch.normal(0, 0.01, y.shape)

w = torch.randn(2, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
losses = []
for _epoch in range(5):
    order, total = torch.randperm(len(X)), 0.0
    for start in range(0, len(X), 25):
        batch = order[start : start + 25]
        loss = ((torch.matmul(X[batch], w) + b - y[batch].reshape(-1)) ** 2 / 2).mean()
        loss.backward()
        with torch.no_grad():
            for p in (w, b):
                p -= 0.05 * p.grad
                p.grad.zero_()
        total += loss.item() * len(batch)
    losses.append(total / len(X))
assert (w.detach() - true_w).abs().max() < 0.1 and abs(b.item() - true_b) < 0.1

A = torch.cat([X, torch.ones(len(X), 1)], dim=1)
solution = torch.linalg.lstsq(A, y.unsqueeze(1)).solution.squeeze()
assert torch.allclose(solution, torch.tensor([2.0, -3.4, 4.2]), atol=0.01)
print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}")
