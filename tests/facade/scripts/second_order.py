"""Learning to learn through gradients of gradients; functions with backwards of their own; Hessians."""

import torch
import torch.nn.functional as F
from torch.autograd import Function, Variable, gradcheck

torch.manual_seed(0)


def net(x, params):
    x = F.relu(F.linear(x, params[0], params[1]))
    return F.linear(x, params[2], params[3])


params = [
    torch.Tensor(16, 1).uniform_(-1.0, 1.0).requires_grad_(),
    torch.zeros(16).requires_grad_(),
    torch.Tensor(1, 16).uniform_(-0.25, 0.25).requires_grad_(),
    torch.zeros(1).requires_grad_(),
]
optimizer = torch.optim.Adam(params, lr=1e-2)
history = []
for _step in range(30):
    optimizer.zero_grad()
    meta = 0
    for _task in range(3):
        phase = torch.empty(1).uniform_(0, 0.5)
        xs, xq = torch.rand(10, 1) * 4 - 2, torch.rand(10, 1) * 4 - 2
        inner = F.mse_loss(net(xs, params), torch.sin(xs + phase))
        grads = torch.autograd.grad(inner, params, create_graph=True)
        fast = [p - 0.05 * g for p, g in zip(params, grads, strict=True)]
        meta = meta + F.mse_loss(net(xq, fast), torch.sin(xq + phase))
    meta.backward()
    optimizer.step()
    history.append(meta.item())


class Exp(Function):
    @staticmethod
    def forward(ctx, i):
        result = i.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        (result,) = ctx.saved_tensors
        return grad_output * result


class Binary(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, threshold):
        ctx.save_for_backward(x)
        return (x > threshold).float()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        g = g.clone()
        g[x.abs() > 1] = 0
        return g, None


assert gradcheck(Exp.apply, (torch.randn(4, dtype=torch.double, requires_grad=True),), eps=1e-6, atol=1e-4)
b = torch.tensor([-2.0, -0.5, 0.5, 2.0], requires_grad=True)
Binary.apply(b, 0.0).sum().backward()
assert b.grad.tolist() == [0, 1, 1, 0]
v = Variable(torch.ones(2, 2), requires_grad=True)
((v + 2) * (v + 2) * 3).mean().backward()
assert v.grad.tolist() == [[4.5, 4.5], [4.5, 4.5]]


def f(w):
    return (w**3).sum() + w.prod()


w = torch.tensor([1.0, 2.0], requires_grad=True)
(g,) = torch.autograd.grad(f(w), w, create_graph=True)
rows = torch.stack([torch.autograd.grad(g[i], w, retain_graph=True)[0] for i in range(2)])
assert torch.equal(rows, torch.autograd.functional.hessian(f, w)) and rows.tolist() == [[6, 1], [1, 12]]
print(f"loss {sum(history[:5]) / 5:.6f} -> {sum(history[-5:]) / 5:.6f}")
