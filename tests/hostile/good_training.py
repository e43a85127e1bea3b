"""Right calls of what trains: optimizers and schedules, each with every argument that it has; transforms."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from good_call import Fresh, Good, good, grown, t

import lamina
from lamina import func, nn, optim
from lamina.autograd import forward_ad
from lamina.optim import lr_scheduler

# What the defaults leave unused.
OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    "RMSprop": {"momentum": 0.1, "centered": True},
    "LBFGS": {"line_search_fn": "strong_wolfe", "max_iter": 3},
}
NEEDED = {
    "StepLR": {"step_size": 2},
    "MultiStepLR": {"milestones": [1, 2]},
    "ExponentialLR": {"gamma": 0.1},
    "CosineAnnealingLR": {"T_max": 2},
    "CosineAnnealingWarmRestarts": {"T_0": 2},
    "OneCycleLR": {"max_lr": 0.1, "total_steps": 3},
    "CyclicLR": {"base_lr": 0.1, "max_lr": 0.2, "step_size_up": 2, "cycle_momentum": False},
    "LambdaLR": {"lr_lambda": lambda epoch: 1.0},
    "MultiplicativeLR": {"lr_lambda": lambda epoch: 1.0},
}


def numbers(build: Callable, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a constructor behind the first: as given, else their defaults."""
    found = dict(inspect.signature(build).parameters)
    del found[next(iter(found))]
    return {n: p.default for n, p in found.items() if p.default is not p.empty} | given


def classes(space: Any, base: type) -> Iterator[tuple[str, type]]:
    for name in dir(space):
        found = getattr(space, name)
        if isinstance(found, type) and issubclass(found, base) and found is not base and name[0] != "_":
            yield name, found


def loss() -> Any:
    return lamina.tensor(1.0)


def optimizers() -> Iterator[Good]:
    """Optimizers and schedules: made, stepped, loaded."""
    for name, build in classes(optim, optim.Optimizer):
        params = Fresh(lambda name=name: [grown(2, 3) if name == "Muon" else grown()])
        if name == "SparseAdam":  # takes sparse gradients
            params = Fresh(lambda: [lamina.ones(3, requires_grad=True)])

        def made_and_stepped(params: Any, build: Any = build, **kwargs: Any) -> Any:
            made = build(params, **kwargs)
            made.step(*[loss] * (build is optim.LBFGS))
            return made

        def state(build: Any = build, params: Any = params) -> Any:
            return build(params.make()).state_dict()

        yield good(name, made_and_stepped, params, **numbers(build, OPTIMIZERS.get(name, {})))
        yield good(
            f"{name} loaded", lambda s, b=build, p=params: b(p.make()).load_state_dict(s), Fresh(state)
        )
        for field in ("state", "param_groups"):
            yield good(
                f"{name} loaded {field}",
                lambda v, f, b=build, p=params, s=state: b(p.make()).load_state_dict(s() | {f: v}),
                Fresh(lambda f=field, s=state: s()[f]),
                field,
            )
    yield good(
        "add_param_group",
        lambda g: optim.SGD([grown()], 0.1).add_param_group(g),
        Fresh(lambda: {"params": [grown()]}),
    )
    yield good("step closure", lambda c: optim.SGD([grown()], 0.1).step(c), lambda: 1.0)
    yield from schedules()


def schedules() -> Iterator[Good]:
    """Schedules: made, stepped; of other schedules."""
    made = Fresh(lambda: optim.SGD([grown()], 0.1, momentum=0.9))

    def steps(optimizer: Any) -> list:
        return [lr_scheduler.StepLR(optimizer, 1), lr_scheduler.ConstantLR(optimizer)]

    for name, build in classes(lr_scheduler, lr_scheduler.LRScheduler):
        if name in ("ChainedScheduler", "SequentialLR", "Curve"):
            continue  # below; Curve is what others derive from

        def followed(optimizer: Any, build: Any = build, name: str = name, **kwargs: Any) -> Any:
            made = build(optimizer, **kwargs)
            optimizer.step()
            return made.step(1.0) if name == "ReduceLROnPlateau" else made.step()

        yield good(name, followed, made, **numbers(build, NEEDED.get(name, {})))
    yield good("ChainedScheduler", lambda o: lr_scheduler.ChainedScheduler(steps(o)).step(), made)
    yield good("ChainedScheduler of", lr_scheduler.ChainedScheduler, Fresh(lambda: steps(made.make())))
    yield good("SequentialLR", lambda o, m: lr_scheduler.SequentialLR(o, steps(o), m).step(), made, [1])
    yield good(
        "SequentialLR of", lambda s: lr_scheduler.SequentialLR(s[0].optimizer, s, [1]),
        Fresh(lambda: steps(made.make())),
    )  # fmt: skip


def transforms() -> Iterator[Good]:
    """func, vmap, forward mode, autocast, checkpoints: made of a function and called."""
    x, line, two = t(3), (lambda x: lamina.sum(lamina.mul(x, x))), (lambda x, y: lamina.sum(lamina.mul(x, y)))
    for name in ("grad", "grad_and_value", "hessian", "jacfwd", "jacrev"):
        wrap = getattr(func, name)
        yield good(
            f"func.{name}", lambda f, a, b, w=wrap, **k: w(f, **k)(a, b), two, x, x, argnums=0, has_aux=False
        )
    yield good("func.vjp", lambda f, a, g, **k: func.vjp(f, a, **k)[1](g), line, x, t(), has_aux=False)
    yield good("func.jvp", func.jvp, line, Fresh(lambda: (lamina.ones(3),)), Fresh(lambda: (lamina.ones(3),)))
    yield good("func.linearize", lambda f, a, b: func.linearize(f, a)[1](b), line, x, x)
    yield good("func.functionalize", lambda f, a: func.functionalize(f)(a), line, x)
    yield good(
        "vmap", lambda f, a, b, **k: lamina.vmap(f, **k)(a, b), two, t(4, 3), t(4, 3),
        in_dims=0, out_dims=0, randomness="error", chunk_size=2,
    )  # fmt: skip
    yield good(
        "func.functional_call", func.functional_call, Fresh(lambda: nn.Linear(3, 2)),
        Fresh(lambda: {"bias": lamina.ones(2)}), Fresh(lambda: (lamina.ones(3),)), {}, tie_weights=True,
        strict=False,
    )  # fmt: skip
    yield good("func.stack_module_state", func.stack_module_state, Fresh(lambda: [nn.Linear(3, 2)] * 2))
    yield good(
        "replace_all_batch_norm_modules_",
        func.replace_all_batch_norm_modules_,
        Fresh(lambda: nn.BatchNorm1d(2)),
    )

    def dual(a: Any, b: Any, level: Any) -> Any:
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(forward_ad.make_dual(a, b, level=level) * 2, level=level).tangent

    yield good("make_dual", dual, x, x, None)
    functional = lamina.autograd.functional
    for name, way in {"jacobian": "strategy", "hessian": "outer_jacobian_strategy"}.items():
        yield good(
            f"functional.{name}", getattr(functional, name), line, x, create_graph=False, strict=False,
            vectorize=False, **{way: "reverse-mode"},
        )  # fmt: skip
    for name in ("vjp", "jvp", "vhp", "hvp"):
        yield good(
            f"functional.{name}", getattr(functional, name), line, x, t(3) if name != "vjp" else t(),
            create_graph=False, strict=False,
        )  # fmt: skip

    def cast(x: Any, **kwargs: Any) -> Any:
        with lamina.autocast(**kwargs):
            return x @ x

    yield good(
        "autocast", cast, t(3, 3), device_type="cpu", dtype=lamina.bfloat16, enabled=True, cache_enabled=True
    )
    checkpoint = lamina.utils.checkpoint.checkpoint
    yield good("checkpoint", checkpoint, line, x, use_reentrant=False, preserve_rng_state=True)
    for named, check in (
        ("gradcheck", lamina.autograd.gradcheck),
        ("gradgradcheck", lamina.autograd.gradgradcheck),
    ):
        yield good(
            named, check, line, Fresh(lambda: (lamina.ones(3, dtype=lamina.float64, requires_grad=True),)),
            eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=False,
        )  # fmt: skip
