"""Help with gradients, parameters as vectors, computed and pruned weights, sequences of any length."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.nn.utils")

from . import parametrizations, parametrize, prune, rnn, stateless
from .clip import clip_grad_norm, clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from .fusion import fuse_conv_bn_eval, fuse_conv_bn_weights, fuse_linear_bn_eval, fuse_linear_bn_weights
from .made import convert_conv2d_weight_memory_format, convert_conv3d_weight_memory_format, skip_init
from .reparametrize import remove_spectral_norm, remove_weight_norm, spectral_norm, weight_norm
from .vector import parameters_to_vector, vector_to_parameters
