"""Parameters of every family, as keyword arguments in plain lists, for tests that compare with PyTorch."""

_EYE = [[1.0, 0.0], [0.0, 1.0]]
_SPREAD = [[2.0, 0.3], [0.3, 0.5]]
_TRIL = [[1.2, 0.0], [-0.4, 0.7]]
_PLACED = (
    {"loc": 0.5, "scale": 2.0},
    {"loc": [0.0, -1.0, 3.0], "scale": [0.3, 1.0, 4.0]},
    {"loc": [[1.0], [2.0]], "scale": [0.5, 1.5]},
)
_TWO = ({"probs": 0.3}, {"probs": [0.05, 0.5, 0.9]}, {"logits": [[-2.0, 0.3], [1.5, 4.0]]})
_CLASSES = (
    {"probs": [0.2, 0.5, 0.3]},
    {"probs": [[1.0, 2.0, 5.0], [3.0, 0.5, 0.5]]},
    {"logits": [[0.1, -2.0, 1.5, 0.0], [3.0, 1.0, 0.0, -1.0]]},
)

CASES = {
    "Bernoulli": _TWO,
    "Beta": (
        {"concentration1": 0.5, "concentration0": 0.7},
        {"concentration1": [2.0, 5.0], "concentration0": [3.0, 1.5]},
    ),
    "Binomial": (
        {"total_count": 5, "probs": [0.1, 0.6]},
        {"total_count": 3, "logits": [[0.5], [-1.0]]},
        {"total_count": [4.0, 10.0], "probs": 0.3},
    ),
    "Categorical": _CLASSES,
    "Cauchy": _PLACED,
    "Chi2": ({"df": 3.0}, {"df": [0.5, 2.0, 9.0]}),
    "ContinuousBernoulli": (
        {"probs": 0.3},
        {"probs": [0.05, 0.5, 0.4995, 0.9]},
        {"logits": [[-2.0, 0.3], [1.5, 4.0]]},
    ),
    "Dirichlet": ({"concentration": [2.0, 3.0, 1.5]}, {"concentration": [[0.5, 0.7], [2.0, 9.0]]}),
    "Exponential": ({"rate": 0.7}, {"rate": [0.5, 3.0]}),
    "FisherSnedecor": ({"df1": 3.0, "df2": 7.0}, {"df1": [1.0, 5.0], "df2": [2.0, 6.0]}),
    "Gamma": (
        {"concentration": 0.5, "rate": 2.0},
        {"concentration": [1.0, 7.0, 40.0], "rate": [0.5, 3.0, 1.0]},
    ),
    "GeneralizedPareto": (
        {"loc": 0.5, "scale": 2.0, "concentration": 0.2},
        {"loc": [0.0, 1.0, 0.0, 2.0], "scale": [1.0, 2.0, 0.5, 1.0], "concentration": [-0.4, 0.6, 0.0, 1.2]},
    ),
    "Geometric": ({"probs": 0.3}, {"probs": [0.05, 0.5, 0.9]}, {"logits": [[-2.0, 0.3], [1.5, 4.0]]}),
    "Gumbel": _PLACED,
    "HalfCauchy": ({"scale": 2.0}, {"scale": [0.3, 1.0, 4.0]}),
    "HalfNormal": ({"scale": 2.0}, {"scale": [0.3, 1.0, 4.0]}),
    "InverseGamma": (
        {"concentration": 3.5, "rate": 2.0},
        {"concentration": [0.5, 1.5, 7.0], "rate": [0.5, 3.0, 1.0]},
    ),
    "Kumaraswamy": (
        {"concentration1": 0.5, "concentration0": 0.7},
        {"concentration1": [2.0, 5.0], "concentration0": [3.0, 1.5]},
    ),
    "LKJCholesky": ({"dim": 3, "concentration": 1.0}, {"dim": 4, "concentration": [0.7, 2.0]}),
    "Laplace": _PLACED,
    "LogNormal": _PLACED,
    "LogisticNormal": (
        {"loc": [0.5, -1.0], "scale": [2.0, 0.5]},
        {"loc": [[0.0, -1.0, 3.0]], "scale": [[0.3, 1.0, 4.0], [1.0, 1.0, 1.0]]},
    ),
    "LowRankMultivariateNormal": (
        {"loc": [0.5, -1.0, 2.0], "cov_factor": [[1.0], [0.5], [-2.0]], "cov_diag": [0.5, 1.0, 2.0]},
        {"loc": [[0.5, -1.0], [1.0, 2.0]], "cov_factor": _TRIL, "cov_diag": [0.5, 1.0]},
    ),
    "Multinomial": tuple({"total_count": 4, **case} for case in _CLASSES),
    "MultivariateNormal": (
        {"loc": [0.5, -1.0], "covariance_matrix": _SPREAD},
        {"loc": [[0.5, -1.0], [2.0, 3.0]], "scale_tril": _TRIL},
        {"loc": [0.5, -1.0], "precision_matrix": [_SPREAD, _EYE]},
    ),
    "NegativeBinomial": (
        {"total_count": 5.0, "probs": [0.1, 0.6]},
        {"total_count": [2.5, 7.0], "logits": [[0.5], [-1.0]]},
    ),
    "Normal": _PLACED,
    "OneHotCategorical": _CLASSES,
    "OneHotCategoricalStraightThrough": _CLASSES,
    "Pareto": ({"scale": 0.5, "alpha": 3.5}, {"scale": [1.0, 2.0], "alpha": [0.8, 1.5]}),
    "Poisson": ({"rate": 0.7}, {"rate": [0.5, 3.0, 40.0]}),
    "RelaxedBernoulli": tuple({"temperature": [0.7], **case} for case in _TWO),
    "RelaxedOneHotCategorical": tuple({"temperature": [0.7], **case} for case in _CLASSES),
    "StudentT": ({"df": 3.0}, {"df": [0.8, 1.5, 9.0], "loc": [0.0, -1.0, 3.0], "scale": [0.3, 1.0, 4.0]}),
    "Uniform": ({"low": -1.0, "high": 2.5}, {"low": [0.0, 1.0], "high": [0.5, 9.0]}),
    "VonMises": (
        {"loc": [0.5], "concentration": [2.0]},
        {"loc": [0.0, -1.0, 3.0], "concentration": [0.3, 15.0, 200.0]},
    ),
    "Weibull": ({"scale": 0.5, "concentration": 3.5}, {"scale": [1.0, 2.0], "concentration": [0.8, 1.5]}),
    "Wishart": (
        {"df": 3.5, "covariance_matrix": _SPREAD},
        {"df": [2.5, 6.0], "scale_tril": _TRIL},
        {"df": [4.0, 5.5], "precision_matrix": [_SPREAD, _EYE]},
    ),
}

EACH = [(name, number) for name, cases in CASES.items() for number in range(len(cases))]


def arguments(module, name, number, requires_grad=False):
    """The keyword arguments of a case: lists are float64 tensors of the module's, numbers stay."""
    made = {}
    for key, value in CASES[name][number].items():
        if isinstance(value, list):
            value = module.tensor(value, dtype=module.float64)
            if requires_grad:
                value.requires_grad_()
        made[key] = value
    return made
