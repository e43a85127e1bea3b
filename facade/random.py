"""Hand on what PyTorch keeps under `torch.random`: seeds and the state of the default generator."""

from ..runtime.random import FUNCTIONS, default_generator, fork_rng

STATE = ("get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state")

globals().update({name: FUNCTIONS[name] for name in STATE})
__all__ = ["default_generator", "fork_rng"] + list(STATE)
