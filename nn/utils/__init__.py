"""Help with gradients, parameters as vectors, computed weights, and sequences of different lengths."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.nn.utils")

from . import rnn
from .clip import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from .reparametrize import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm
from .vector import parameters_to_vector, vector_to_parameters
