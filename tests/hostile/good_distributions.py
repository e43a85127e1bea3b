"""Right calls of distributions: each family made, drawn from and asked; transforms; divergences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distribution_cases import CASES
from good_call import Fresh, Good, good, t

import lamina
from lamina import distributions as D


def asked(family: str, **parameters: Any) -> Any:
    """A member of a family, a draw of it, and how likely that is."""
    made = getattr(D, family)(**parameters, validate_args=True)
    return made.log_prob(made.sample((2,)))


def tensors(parameters: dict[str, Any]) -> dict[str, Fresh]:
    return {
        k: v if isinstance(v, int) else Fresh(lambda v=v: lamina.tensor(v)) for k, v in parameters.items()
    }


TRANSFORMS: dict[str, tuple] = {
    "AbsTransform": (), "AffineTransform": (0.5, 2.0, 0), "CorrCholeskyTransform": (), "ExpTransform": (),
    "PowerTransform": (2.0,), "ReshapeTransform": ((3,), (3, 1)), "SigmoidTransform": (),
    "SoftmaxTransform": (), "SoftplusTransform": (), "StickBreakingTransform": (), "TanhTransform": (),
}  # fmt: skip


def normal() -> Any:
    return D.Normal(lamina.zeros(3), lamina.ones(3))


def distributions() -> Iterator[Good]:
    """Families by their cases, what they are asked, transforms, and what is made of other distributions."""
    for family, cases in CASES.items():
        yield good(f"D.{family}", lambda f=family, **parameters: asked(f, **parameters), **tensors(cases[0]))
        made = Fresh(
            lambda f=family, c=cases[0]: getattr(D, f)(
                **{k: v.make() if isinstance(v, Fresh) else v for k, v in tensors(c).items()}
            )
        )
        for question in ("sample", "expand"):
            yield good(f"D.{family}.{question}", lambda d, s, q=question: getattr(d, q)(s), made, (2,))
        for question in ("log_prob", "cdf", "icdf"):
            yield good(f"D.{family}.{question}", lambda d, v, q=question: getattr(d, q)(v), made, t(3))
    for name, args in TRANSFORMS.items():
        yield good(
            f"D.{name}",
            lambda x, *a, n=name, **k: getattr(D, n)(*a, **k)(x),
            t(3),
            *args,
            cache_size=0,
        )
    yield good("D.ComposeTransform", D.ComposeTransform, Fresh(lambda: [D.ExpTransform(), D.AbsTransform()]))
    yield good(
        "D.CatTransform",
        lambda p, x: D.CatTransform(p, lengths=[1, 2])(x),
        Fresh(lambda: [D.ExpTransform()] * 2),
        t(3),
    )
    yield good(
        "D.StackTransform", lambda p, x: D.StackTransform(p)(x), Fresh(lambda: [D.ExpTransform()] * 3), t(3)
    )
    yield good("D.IndependentTransform", D.IndependentTransform, Fresh(D.ExpTransform), 1)
    yield good(
        "D.TransformedDistribution",
        D.TransformedDistribution,
        Fresh(normal),
        Fresh(lambda: [D.ExpTransform()]),
    )
    yield good("D.Independent", D.Independent, Fresh(normal), 1)
    yield good(
        "D.MixtureSameFamily", D.MixtureSameFamily,
        Fresh(lambda: D.Categorical(lamina.ones(3))), Fresh(normal),
    )  # fmt: skip
    yield good("D.kl_divergence", D.kl_divergence, Fresh(normal), Fresh(normal))
    yield good("D.biject_to", D.biject_to, D.constraints.positive)
    yield good("D.transform_to", D.transform_to, D.constraints.positive)
    for name in (
        "interval",
        "greater_than",
        "less_than",
        "integer_interval",
        "multinomial",
        "half_open_interval",
    ):
        bounds = (
            (0.0,) if name in ("greater_than", "less_than") else (3,) if name == "multinomial" else (0.0, 1.0)
        )
        yield good(
            f"constraints.{name}",
            lambda x, *a, n=name: getattr(D.constraints, n)(*a).check(x),
            t(3),
            *bounds,
        )
