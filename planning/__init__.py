"""Plans training on many devices before any is paid for: what fits, what a step takes, and where it goes.

    from lamina.planning import plan
    print(plan("layers=96,hidden=12288,heads=96,vocab=51200,seq=2048", mesh="8x64", device="h200"))

`python -m lamina plan model.py --mesh 8x64 --device h200` does the same for a model of one's own, which runs
once on the meta device and takes no memory.  All of it is arithmetic on stated numbers: the costs of layers
(`layer_costs.py`), data sheets (`accelerators.py`), alpha and beta of collectives (`collective_costs.py`).
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.planning")

from .accelerators import DEVICES, Accelerator, Link
from .calibration import calibrate
from .layer_costs import LayerCosts, ModelCosts, Product
from .mesh_layout import Layout, Mesh, PlanError
from .recorded_costs import recorded
from .step_plan import Plan, plan
from .step_time import Prediction, predict
from .transformer_costs import transformer

__all__ = [
    "DEVICES",
    "Accelerator",
    "LayerCosts",
    "Layout",
    "Link",
    "Mesh",
    "ModelCosts",
    "Plan",
    "PlanError",
    "Prediction",
    "Product",
    "calibrate",
    "plan",
    "predict",
    "recorded",
    "transformer",
]
