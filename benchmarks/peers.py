"""The peers, each as it would be used at its best: a model in, a call out.

Every function returns None where its package is not installed, and prints why it can't compete.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

Run = Callable[[], Any]


def torch_eager(model: Any, x: np.ndarray, channels_last: bool = False) -> Run:
    """PyTorch without compiling, in either memory format."""
    import torch

    model, given = model.eval(), torch.tensor(x)
    if channels_last:
        model, given = (
            model.to(memory_format=torch.channels_last),
            given.to(memory_format=torch.channels_last),
        )

    def run():
        with torch.inference_mode():
            return model(given)

    return run


def torch_compiled(model: Any, x: np.ndarray) -> Run:
    """torch.compile with weights frozen: its fastest way of inference on a CPU."""
    import torch
    import torch._inductor.config as config

    config.freezing = True
    torch._dynamo.reset()  # its limit of recompilations is counted over all models of a process
    compiled, given = torch.compile(model.eval()), torch.tensor(x)

    def run():
        with torch.no_grad():
            return compiled(given)

    run()
    return run


def onnx_bytes(model: Any, x: np.ndarray) -> bytes:
    import torch

    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model.eval(), (torch.tensor(x),), file, dynamo=False, opset_version=18)
    return file.getvalue()


def onnxruntime(model: bytes, x: np.ndarray, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: x}
    return lambda: session.run(None, given)


def openvino(model: bytes, x: np.ndarray, threads: int) -> Run:
    import openvino

    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = core.compile_model(core.read_model(io.BytesIO(model)), "CPU", settings)
    request = compiled.create_infer_request()
    return lambda: request.infer([x])


def torch_step(model: Any, x: np.ndarray, y: np.ndarray, compiled: bool = False) -> Run:
    """A training step: cross entropy, backward, Adam."""
    import torch

    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    given, labels = torch.tensor(x), torch.tensor(y)

    def loss_of(given, labels):
        out = model(given)
        return torch.nn.functional.cross_entropy(out.reshape(-1, out.shape[-1]), labels.reshape(-1))

    if compiled:
        torch._dynamo.reset()
        loss_of = torch.compile(loss_of)

    def run():
        optimizer.zero_grad()
        loss = loss_of(given, labels)
        loss.backward()
        optimizer.step()
        return loss

    run()
    return run


def jax_jit(model: Any, x: np.ndarray) -> Run:
    """jax.jit over the forward, the weights as its constants."""
    import jax
    from jax_library import call

    arrays = model.train(False).arrays()
    compiled = jax.jit(lambda x: call(model, arrays, x)[0])
    given = jax.device_put(_narrow(x))
    return lambda: compiled(given).block_until_ready()


def jax_step(model: Any, x: np.ndarray, y: np.ndarray) -> Run:
    """A training step under one jax.jit, with donated state: cross entropy, gradients, Adam."""
    import jax
    import jax.numpy as jnp
    from jax_library import call

    model.train()
    start = {k: jnp.asarray(v) for k, v in model.arrays().items()}
    trained = [
        k for k, v in start.items() if v.dtype == jnp.float32 and "running" not in k and not k.endswith("at")
    ]

    def loss_of(params, rest, x, y):
        out, after = call(model, {**rest, **params}, x)
        rows = jax.nn.log_softmax(out.reshape(-1, out.shape[-1]))
        return -rows[jnp.arange(len(rows)), y.reshape(-1)].mean(), {k: after[k] for k in rest}

    def step(params, rest, first, second, count, x, y):
        (loss, rest), grads = jax.value_and_grad(loss_of, has_aux=True)(params, rest, x, y)
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)

        def moved(p, m, v):
            return p - 1e-4 * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)

        return jax.tree.map(moved, params, first, second), rest, first, second, count, loss

    compiled = jax.jit(step, donate_argnums=(0, 1, 2, 3))
    params = {k: start[k] for k in trained}
    zeros = {k: jnp.zeros_like(v) for k, v in params.items()}
    rest = {k: v for k, v in start.items() if k not in params}
    state = [params, rest, zeros, {k: v.copy() for k, v in zeros.items()}, jnp.float32(0)]
    given, labels = jax.device_put(_narrow(x)), jax.device_put(_narrow(y))

    def run():
        *state[:], loss = compiled(*state, given, labels)
        return loss.block_until_ready()

    run()
    return run


def _narrow(x: np.ndarray) -> np.ndarray:
    """int64 as int32, which JAX takes without a warning."""
    return x.astype(np.int32) if x.dtype == np.int64 else x
