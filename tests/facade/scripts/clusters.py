"""k-means by broadcasting, principal components, a mixture of Gaussians, a Gaussian process; NumPy beside."""

import numpy as np
import torch

torch.manual_seed(0)
centers = torch.tensor([[0.0, 0.0], [5.0, 5.0], [0.0, 5.0]])
x = torch.cat([c + torch.randn(40, 2) * 0.5 for c in centers])
c = x[[0, 1, 100]].clone()
inertia = []
for _step in range(8):
    distance = ((x[:, None, :] - c[None, :, :]) ** 2).sum(-1)
    label = distance.argmin(dim=1).long().view(-1)
    inertia.append(distance.min(dim=1)[0].sum().item())
    c.zero_()
    c.scatter_add_(0, label[:, None].repeat(1, 2), x)
    c /= torch.bincount(label, minlength=3).type_as(c).view(3, 1).clamp(min=1)
assert torch.cdist(x, c).argmin(1).eq(label).all()

centred = x - x.mean(dim=0, keepdim=True)
_, s, vh = torch.linalg.svd(centred, full_matrices=False)
cov = torch.cov(x.T)
values, vectors = torch.linalg.eigh(cov)
assert torch.allclose(values.flip(0), s**2 / (len(x) - 1), rtol=1e-4)
assert torch.allclose((vh[0] @ vectors[:, 1]).abs(), torch.tensor(1.0), atol=1e-4)
v = torch.rand(2)
for _step in range(50):
    v = cov @ v
    v = v / v.norm()
assert abs((v @ cov @ v - values[-1]).item()) < 1e-3

mu, pi, sigma = centers.clone(), torch.ones(3) / 3, torch.ones(3, 2)
for _step in range(5):
    log = -0.5 * (((x[:, None] - mu) ** 2 / sigma).sum(-1) + sigma.log().sum(-1)) + pi.log()
    r = torch.softmax(log, 1)
    n = r.sum(0)
    mu = (r.T @ x) / n.unsqueeze(-1)
    sigma = torch.einsum("nk,nkd->kd", r, (x[:, None] - mu) ** 2) / n[:, None] + 1e-6
    pi = n / n.sum()
assert torch.isfinite(torch.logsumexp(log, 1).mean())

t = torch.linspace(0, 5, 10)
kernel = torch.exp(-0.5 * (t.view(-1, 1) - t.view(1, -1)) ** 2)
low = torch.linalg.cholesky(kernel + 1e-3 * torch.eye(10))
alpha = torch.cholesky_solve(torch.sin(t)[:, None], low)
assert (kernel @ alpha).squeeze().sub(t.sin()).abs().max() < 0.02
assert torch.allclose(torch.as_tensor(np.sqrt(t.numpy())), t.sqrt()) and np.isclose(
    np.asarray(t).sum(), t.sum()
)
middle = torch.quantile(t, torch.tensor([0.25, 0.5, 0.75])).numpy()
np.testing.assert_allclose(middle, np.quantile(t.numpy(), [0.25, 0.5, 0.75]), rtol=1e-6)
print(f"loss {inertia[0]:.6f} -> {inertia[-1]:.6f}")
