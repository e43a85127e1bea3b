"""Every op record: which have a kernel for the GPU, that Triton compiles it, and that it is right."""

import subprocess
import sys
from pathlib import Path

import pytest
from record_kernels import LOWERED, record_kernels

from lamina.ir.lowering import Decomposition, NotLowered
from lamina.ir.op import REGISTRY
from lamina.passes.triton.generate import generate
from lamina.passes.triton.target import Target
from lamina.runtime.triton_compiler import compiled

HERE = Path(__file__).parent
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
NO_TRITON = "Triton is not installed: the extra gpu has it"
pytestmark = pytest.mark.timeout(600)  # some compile or interpret for a minute, undisturbed

DECOMPOSED = """
    adadelta_update adafactor_update adagrad_update adam_update adamax_update asgd_rates_update
    asgd_update attention attention_backward band_scan ctc_paths dequantize_affine gru_layer
    gru_layer_backward heaviside index_add index_copy index_fill index_put lstm_layer
    lstm_layer_backward muon_update nadam_product_update nadam_update quantize_affine
    quantized_conv1d quantized_conv2d quantized_linear radam_update rmsprop_update rnn_layer
    rnn_layer_backward rprop_update scatter scatter_add scatter_reduce sgd_update
    softmax_cross_entropy std view_scatter
""".split()
ON_HOST = """
    all_gather all_reduce all_to_all all_to_all_parts broadcast permute_ranks reduce reduce_scatter
    _assert_async _dirichlet_grad _standard_gamma_grad argwhere bincount cholesky_inverse cholesky_parts
    cholesky_solve complex fft_c2c fft_c2r fft_r2c frexp gcd geqrf hash_tensor i0 igamma igammac
    imag kthvalue lcm ldl_parts ldl_solved linalg_cholesky linalg_det linalg_eig
    linalg_eigh linalg_inv linalg_lu_factor linalg_matrix_exp linalg_qr linalg_slogdet linalg_svd
    median_all median_dim mode nanmedian_all nextafter pivoted_order pseudo_inverse random_binomial
    random_dirichlet random_gamma random_multinomial random_permutation random_poisson
    random_von_mises real searchsorted solve_matrix solve_triangle sort special_airy_ai special_bessel_j0
    special_bessel_j1 special_bessel_y0 special_bessel_y1 special_chebyshev_polynomial_t
    special_chebyshev_polynomial_u special_chebyshev_polynomial_v special_chebyshev_polynomial_w
    special_erfcx special_hermite_polynomial_h special_hermite_polynomial_he special_i0e special_i1
    special_i1e special_laguerre_polynomial_l special_legendre_polynomial_p special_log_ndtr
    special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0
    special_modified_bessel_k1 special_ndtri special_scaled_modified_bessel_k0
    special_scaled_modified_bessel_k1 special_shifted_chebyshev_polynomial_t
    special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v
    special_shifted_chebyshev_polynomial_w special_zeta topk tril_indices triu_indices unique_parts
    view_as_complex view_as_real pairs_to_complex
""".split()


def test_triton_records_are_counted(capsys):
    """What runs on the host, or as a graph of other ops, is listed here by name: all else has a kernel."""
    decomposed = {name for name, op in REGISTRY.items() if isinstance(op.lower, Decomposition)}
    on_host = {name for name, op in REGISTRY.items() if isinstance(op.lower, NotLowered)}
    with capsys.disabled():
        print(
            f"\nop records: {len(LOWERED)} kernels, {len(decomposed)} graphs of these, {len(on_host)} extern"
        )
        print(" ".join(sorted(on_host)))
    assert decomposed == set(DECOMPOSED)
    assert on_host == set(ON_HOST)
    assert set(LOWERED) == set(REGISTRY) - decomposed - on_host and len(LOWERED) >= 216


@pytest.mark.parametrize("name", LOWERED)
def test_triton_record_is_written_in_every_dtype(name):
    codes = [generate(kernel) for _, kernel, _ in record_kernels(names=[name], count=3)]
    assert codes
    for code in codes:
        compile(code.source, "<generated>", "exec")
        assert f"def {code.name}(" in code.source and "tl.store(" in code.source or "tl.atomic" in code.source


@pytest.fixture(scope="module")
def compiler():
    pytest.importorskip("triton", reason=NO_TRITON)
    from lamina.passes.triton import compiler

    return compiler


def test_triton_record_compiles_in_a_dtype(compiler, of_the_day):
    """One dtype of each for one target, which both go round with the records; the slow test takes all."""
    codes, today = {}, of_the_day(enumerate(LOWERED), 4)
    for turn, name in today:
        found = list(record_kernels(names=[name]))
        label, kernel, _ = found[turn % len(found)]
        codes.setdefault(generate(kernel), (label, TARGETS[turn % len(TARGETS)]))
    for code, (label, target) in codes.items():
        assert compiler.compile_code(code, Target.named(target)).code[:4] == b"\x7fELF", (label, target)
    assert len(codes) > 0.6 * len(today)  # 150 of 216: some are of one code


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("target", TARGETS)
def test_triton_record_compiles_in_every_dtype(target):
    pytest.importorskip("triton", reason=NO_TRITON)
    codes = {generate(kernel): label for label, kernel, _ in record_kernels()}
    for binary, label in zip(compiled(codes, Target.named(target)), codes.values(), strict=True):
        assert binary.code[:4] == b"\x7fELF" and binary.target == target, label
    assert len(codes) > 1000


@pytest.mark.parametrize("what, names, every", [("records", LOWERED, 5), ("graphs", DECOMPOSED, 8)])
def test_triton_records_agree_in_the_interpreter(what, names, every, of_the_day):
    pytest.importorskip("triton", reason=NO_TRITON)
    run = subprocess.run(
        [sys.executable, "triton_numerics.py", what, *(today := of_the_day(names, every))],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-3000:]
    assert all(f"\n{name} " in f"\n{run.stdout}" for name in today)
