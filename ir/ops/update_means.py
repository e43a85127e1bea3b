"""Further updates, element by element: NAdam, RAdam, ASGD, Rprop (see update.py)."""

from __future__ import annotations

from typing import Any

from .arithmetic import sign
from .cast import cast
from .compare import where
from .extremes import clamp, maximum
from .powers import sqrt
from .update import gradient, moved, update


def greater(a: Any, b: Any) -> Any:
    """The greater of two numbers; Python's stay Python's, which take no part in promotion."""
    return max(a, b) if isinstance(a, float) and isinstance(b, float) else maximum(a, b)


def lesser(a: Any, b: Any) -> Any:
    """The lesser of two numbers (see `greater`)."""
    return -greater(-a, -b)


def decayed(p: Any, lr: Any, weight_decay: Any, decoupled: bool) -> Any:
    """The parameter after decoupled weight decay."""
    return p * (1 - lr * weight_decay) if decoupled and weight_decay is not None else p


# ---- NAdam
def momentum_at(step: Any, beta1: Any, momentum_decay: Any) -> Any:
    """Dozat's schedule of the first moment's share."""
    return beta1 * (1 - 0.5 * 0.96 ** (step * (0 if momentum_decay is None else momentum_decay)))


def nadam_product(step, beta1, momentum_decay):
    share = momentum_at(step, beta1, momentum_decay)
    return lambda g, product: (
        product * (share if isinstance(share, float) else cast(share, dtype=product.dtype)),
    )


nadam_product_update = update(
    "nadam_product_update",
    nadam_product,
    numbers={"step": None, "beta1": 0.9, "momentum_decay": 0},
    states=(),
    doc="""Multiply the product of NAdam's momenta by that of this step.

    nadam_product_update(products, steps, *, step, beta1=0.9, momentum_decay=0)
    """,
)


def nadam(step, mu_product, lr, beta1, beta2, eps, weight_decay, momentum_decay, *, decoupled, maximize):
    now, then = momentum_at(step, beta1, momentum_decay), momentum_at(step + 1, beta1, momentum_decay)
    root = (1 - beta2**step) ** 0.5
    of_gradient, of_mean = lr * (1 - now) / (1 - mu_product), lr * then / (1 - mu_product * then)

    def one(g, p, mean, square):
        g = gradient(g, p, None if decoupled else weight_decay, maximize)
        p = decayed(p, lr, weight_decay, decoupled)
        mean = moved(mean, g, beta1)
        square = square * beta2 + g * g * (1 - beta2)
        denominator = sqrt(square) / root + eps
        return p - g / denominator * of_gradient - mean / denominator * of_mean, mean, square

    return one


nadam_update = update(
    "nadam_update",
    nadam,
    numbers={"step": None, "mu_product": None, "lr": None, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8,
             "weight_decay": 0, "momentum_decay": 0},
    flags={"decoupled": False, "maximize": False},
    states=("exp_avgs", "exp_avg_sqs"),
    wide=("mu_product",),
    doc="""Take a step of NAdam.

    nadam_update(params, grads, exp_avgs, exp_avg_sqs, *, step, mu_product, lr, beta1=0.9, beta2=0.999,
    eps=1e-8, weight_decay=0, momentum_decay=0, decoupled=False, maximize=False); states start as zeros.
    mu_product: the product of u(1) ... u(step), where u(t) = beta1 * (1 - 0.96 ** (t * momentum_decay) / 2).

        m <- beta1 * m + (1 - beta1) * g,  v <- beta2 * v + (1 - beta2) * g ** 2
        d = sqrt(v / (1 - beta2 ** step)) + eps
        p <- p - lr * (1 - u(step)) / (1 - mu_product) * g / d
               - lr * u(step + 1) / (1 - mu_product * u(step + 1)) * m / d
    Source: Dozat, Incorporating Nesterov momentum into Adam, 2016.
    """,
)  # fmt: skip


# ---- RAdam
def radam(step, lr, beta1, beta2, eps, weight_decay, *, decoupled, maximize):
    faded = beta2**step
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * step * faded / (1 - faded)
    known = 1.0 * (length > 5)  # whether the variance is; a number, as no rule branches
    share = known * (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    rate = lr / (1 - beta1**step)
    adaptive, plain = rate * (1 - faded) ** 0.5 * share**0.5, rate * (1 - known)

    def one(g, p, mean, square):
        g = gradient(g, p, None if decoupled else weight_decay, maximize)
        p = decayed(p, lr, weight_decay, decoupled)
        mean = moved(mean, g, beta1)
        square = square * beta2 + g * g * (1 - beta2)
        # What takes no part must not be 0 / 0.
        return p - mean * plain - mean / (sqrt(square) + eps + (1 - known)) * adaptive, mean, square

    return one


radam_update = update(
    "radam_update",
    radam,
    numbers={"step": None, "lr": None, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0},
    flags={"decoupled": False, "maximize": False},
    states=("exp_avgs", "exp_avg_sqs"),
    doc="""Take a step of RAdam.

    radam_update(params, grads, exp_avgs, exp_avg_sqs, *, step, lr, beta1=0.9, beta2=0.999, eps=1e-8,
    weight_decay=0, decoupled=False, maximize=False); states start as zeros.

        m <- beta1 * m + (1 - beta1) * g,  v <- beta2 * v + (1 - beta2) * g ** 2
        n = N - 2 * step * beta2 ** step / (1 - beta2 ** step),  N = 2 / (1 - beta2) - 1
        r = sqrt((n - 4) * (n - 2) * N / ((N - 4) * (N - 2) * n))
        d = (sqrt(v) + eps) / sqrt(1 - beta2 ** step)
        p <- p - lr * m / (1 - beta1 ** step) * (r / d if n > 5 else 1)
    Source: Liu et al., On the variance of the adaptive learning rate and beyond, 2020.
    """,
)


# ---- ASGD
def asgd_rates(step, lr, lambd, alpha, t0):
    eta = lr / (1 + lambd * lr * step) ** alpha
    mu = 1 / greater(1.0, step - t0)
    return lambda steps, old_eta, old_mu: (steps * 0 + eta, steps * 0 + mu)


asgd_rates_update = update(
    "asgd_rates_update",
    asgd_rates,
    numbers={"step": None, "lr": None, "lambd": 1e-4, "alpha": 0.75, "t0": 1e6},
    states=("mus",),
    doc="""Set the rates of ASGD's next step.

    asgd_rates_update(etas, steps, mus, *, step, lr, lambd=1e-4, alpha=0.75, t0=1e6)

        eta <- lr / (1 + lambd * lr * step) ** alpha,  mu <- 1 / max(1, step - t0)
    """,
)


def asgd(eta, mu, lambd, weight_decay, *, maximize):
    def one(g, p, mean):
        g = gradient(g, p, weight_decay, maximize)
        p = p * (1 - lambd * eta) - g * eta
        return p, mean * (1 - mu) + p * mu  # a share of 1 leaves the parameter itself

    return one


asgd_update = update(
    "asgd_update",
    asgd,
    numbers={"eta": None, "mu": None, "lambd": 1e-4, "weight_decay": 0},
    flags={"maximize": False},
    states=("axs",),
    wide=("eta", "mu"),
    doc="""Take a step of averaged stochastic gradient descent.

    asgd_update(params, grads, axs, *, eta, mu, lambd=1e-4, weight_decay=0, maximize=False)

        p <- p * (1 - lambd * eta) - eta * g,  ax <- ax + mu * (p - ax)
    Source: Polyak and Juditsky, Acceleration of stochastic approximation by averaging, 1992.
    """,
)


# ---- Rprop
def rprop(etaminus, etaplus, step_size_min, step_size_max, *, maximize):
    def one(g, p, previous, size):
        g = -g if maximize else g
        turn = sign(g * previous)
        back = turn < 0
        factor = where(back, etaminus, where(turn > 0, etaplus, turn * 0 + 1))  # NaN stays NaN
        size = clamp(size * factor, step_size_min, step_size_max)
        g = where(back, g * 0, g)
        return p - sign(g) * size, g, size

    return one


rprop_update = update(
    "rprop_update",
    rprop,
    numbers={"etaminus": 0.5, "etaplus": 1.2, "step_size_min": 1e-6, "step_size_max": 50.0},
    flags={"maximize": False},
    states=("prevs", "step_sizes"),
    doc="""Take a step of resilient backpropagation.

    rprop_update(params, grads, prevs, step_sizes, *, etaminus=0.5, etaplus=1.2, step_size_min=1e-6,
    step_size_max=50, maximize=False); prevs start as zeros, sizes as the rate.

        s <- s * etaplus where g has the sign of the last, etaminus where it has the other, and g <- 0 there
        p <- p - sign(g) * s
    Source: Riedmiller and Braun, A direct adaptive method for faster backpropagation learning, 1993.
    """,
)
