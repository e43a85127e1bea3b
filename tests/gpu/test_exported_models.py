"""Files of exported models on a GPU: their runner, which has NumPy and cuda-bindings alone, on the fake.

Results are of the kernels' sources, which the interpreter runs on the fake's memory; the machine code in a
file is looked at, and nothing here can run it.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from fake_cuda import OUT_OF_MEMORY, Fake, Launch, missing, on_fake, run

import lamina
from lamina import jit, nn
from lamina.ir.errors import ArgumentError
from lamina.jit import ExportError, artifact

sys.path.insert(0, str(Path(__file__).parent.parent / "hostile"))
from model_archive import signed, split
from mutations import altered

GPU = "sm_90"


@pytest.fixture(scope="module", autouse=True)
def _triton():
    pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")


def loader(folder: str) -> Any:
    """The module that files carry, from a file of its own: Lamina's modules are no part of it."""
    path = artifact.write_loader(Path(folder, "carried.py"))
    spec = importlib.util.spec_from_file_location("carried", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exported(folder: str, function: Callable, *example: Any, targets: tuple[str, ...] = ("cpu", GPU)) -> Path:
    path = Path(folder, "model.lam")
    jit.export(function, path, *example, levels=artifact.levels_here()[:1], targets=targets)
    return path


def small() -> tuple[nn.Module, lamina.Tensor]:
    lamina.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval(), lamina.randn(2, 6)


# ---- what is computed
def networks() -> dict[str, tuple[Callable, tuple, float]]:
    """Functions, their arguments, and by what share of the largest number results may differ."""
    lamina.manual_seed(0)
    f32, bf16 = 2.0**-18, 2.0**-5  # sums of some hundred terms, in another order; roundings of eight bits
    images = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.Flatten(),
        nn.Linear(64, 10),
    ).eval()  # fmt: skip
    halves = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 16, 3, padding=1))
    halves = halves.bfloat16().eval()
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()
    words, places = nn.Embedding(20, 32), lamina.arange(5)

    def reads(ids, mask):
        hidden = layer(words(ids) + words.weight[places], src_key_padding_mask=mask)
        return {"hidden": hidden, "best": [hidden.argmax(-1), ("said", 3)], "any": mask.any()}

    ids, mask = lamina.randint(0, 20, (2, 5)), lamina.zeros(2, 5, dtype=lamina.bool)
    mask[1, 3:] = True
    scale = lamina.randn(70)

    def plain(x, n):
        return (x[1:] * scale).cumsum(0), x.sum(), (n * 2, x.to(lamina.float64).mean(1), n.float().half())

    return {
        "images": (images, (lamina.randn(2, 3, 8, 8),), f32),
        "halves": (halves, (lamina.randn(2, 16, 6, 6).bfloat16(),), bf16),
        "transformer": (reads, (ids, mask), f32),
        "plain": (plain, (lamina.randn(9, 70), lamina.arange(5)), f32),
    }


def given(x: lamina.Tensor) -> np.ndarray:
    """An argument as the runner takes it: bfloat16 as its 16 bits."""
    return x.view(lamina.int16).numpy().view(np.uint16) if x.dtype is lamina.bfloat16 else x.numpy()


def leaves(x: Any) -> list[Any]:
    if isinstance(x, dict):
        x = [*x.values()]
    return [leaf for item in x for leaf in leaves(item)] if isinstance(x, (list, tuple)) else [x]


def widened(x: Any) -> np.ndarray:
    """A result as float64: bfloat16 comes as its 16 bits."""
    array = np.asarray(x)
    if array.dtype == np.uint16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


class Watched:
    """Launches, each held against what the file, its cubin and the compiler say of the kernel."""

    def __init__(self, fake: Fake):
        from launched_sources import Sources

        from lamina.jit import gpu_code

        self.sources = Sources(fake)
        self.binaries: dict[str, Any] = {}
        self.launches: list[tuple[str, tuple[int, ...]]] = []
        self.fake, compiled, run_source = fake, gpu_code.compiled, self.sources._launched

        def compiling(codes, target):
            codes = [*codes]
            binaries = compiled(codes, target)
            for code, binary in zip(codes, binaries, strict=True):
                self.sources.add(code, binary)
                self.binaries[code.name] = binary
            return binaries

        def launched(launch: Launch) -> None:
            self._look(launch)
            run_source(launch)

        gpu_code.compiled = compiling
        fake.on_launch(launched)

    def _look(self, launch: Launch) -> None:
        from lamina.runtime.cuda import cubin

        binary = self.binaries[launch.name]
        threads = 32 * binary.num_warps
        assert launch.block == (threads, 1, 1) == cubin.block(binary.code, launch.name), launch.name
        assert launch.shared == binary.shared and launch.cluster == 1, launch.name
        (*_, (start, size)) = cubin.parameters(binary.code, launch.name)
        assert len(launch.parameters) == start + size, launch.name
        assert all(self.fake.is_device(address) for address in launch.addresses), launch.name
        self.launches.append((launch.name, launch.grid))


@on_fake(capacity=256 << 20)
def test_a_file_computes_on_a_gpu_what_it_computes_on_the_cpu(fake: Fake):
    watched = Watched(fake)
    with TemporaryDirectory() as folder:
        module = loader(folder)
        prologues = 0
        for name, (function, example, share) in networks().items():
            path = exported(folder, function, *example)
            arrays = [*map(given, example)]
            watched.launches.clear()
            model = module.load(path, device="cuda")
            about = model.manifest["gpus"][GPU]
            prologues += len(watched.launches)
            steps = [step for step in about["prologue"]["steps"] if step[0] == "launch"]
            assert len(watched.launches) == len(steps), name
            wanted = module.load(path).run(*arrays)
            for _ in range(2):
                watched.launches.clear()
                found, calls = model.run(*arrays), fake.calls("cuMemAlloc")
                steps = [step for step in about["main"]["steps"] if step[0] == "launch"]
                assert watched.launches == [
                    (about["kernels"][kernel]["name"], (grid, 1, 1)) for _, kernel, grid, *_ in steps
                ], name
                assert type(found) is type(wanted) and len(leaves(found)) == len(leaves(wanted))
                for a, b in zip(leaves(wanted), leaves(found), strict=True):
                    if isinstance(a, np.ndarray):
                        assert (a.dtype, a.shape) == (b.dtype, b.shape), name
                        exact, x, y = a.dtype.kind in "biu" and a.dtype != np.uint16, widened(a), widened(b)
                        assert np.abs(x - y).max() <= (0 if exact else share * np.abs(x).max()), name
                    else:
                        assert a == b
            assert fake.calls("cuMemAlloc") == calls  # nothing is allocated by a call
            del model
            gc.collect()
            assert set(fake.live().values()) == {0}, fake.live()
        assert prologues  # weights of halves are laid out there


@on_fake()
def test_an_index_out_of_range_is_told(fake: Fake):
    Watched(fake)
    with TemporaryDirectory() as folder:
        module, table = loader(folder), lamina.arange(10) * 3
        path = exported(folder, lambda i: table[i] + 1, lamina.tensor([1, 2, 9]))
        model = module.load(path, device="cuda")
        assert model.run(np.array([0, 9, 4])).tolist() == [1, 28, 13]
        with pytest.raises(IndexError, match="an index is out of range"):
            model.run(np.array([0, 10, 4]))
        assert model.run(np.array([0, -1, 4])).tolist() == [1, 28, 13]


@on_fake(capacity=256 << 20)
def test_large_products_have_their_shared_and_scratch_memory(fake: Fake):
    """Their kernels ask for more shared memory than others, and for room for descriptors; none is run."""
    from lamina.ir.graph import Builder
    from lamina.ir.op import REGISTRY
    from lamina.ir.types import type_of
    from lamina.jit.gpu_code import gpu_code

    kind = type_of(lamina.float16, (4096, 4096))
    with Builder("product") as b:
        operands = b.param(kind), b.param(kind)
        graph = b.finish(b.emit(REGISTRY["matmul"], operands, {}).outputs)
    code, seen = gpu_code(graph, 2, GPU), []
    fake.on_launch(lambda one: seen.append((one.shared, one.parameters)))
    with TemporaryDirectory() as folder:
        module, path = loader(folder), Path(folder, "product.lam")
        with path.open("w+b") as file:
            artifact.write(file, graph, ["x", "y"], {}, 0, (), gpus={GPU: code})
        (kernel,) = code.about["kernels"]
        assert kernel["shared"] > 48 << 10 and kernel["scratch"] > 0
        x, model = np.zeros((4096, 4096), np.float16), module.load(path, device="cuda")
        assert model.run(x, x).shape == x.shape
        ((shared, parameters),) = seen
        (step,) = code.about["main"]["steps"]
        assert shared == kernel["shared"]
        scratch = int.from_bytes(parameters[24:32], "little")
        assert scratch % 128 == 0 and fake.is_device(scratch, kernel["scratch"] * step[2])


# ---- where, and with what
BARE = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import lamina_model
for name in ("lamina", "triton", "torch"):
    sys.modules[name] = None
model = lamina_model.model("cuda")
assert lamina_model.run(np.ones((2, 6), np.float32), device="cuda").shape == (2, 3)
assert model is lamina_model.model("cuda") and lamina_model.model() is not model
print(model.level, model.inputs)
"""


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_the_runner_takes_numpy_and_cuda_bindings_alone(tmp_path):
    path = exported(str(tmp_path), *small(), targets=("cpu", "sm_80", GPU))
    for capability, level in ((90, "sm_90"), (86, "sm_80"), (80, "sm_80")):
        done = run(["-c", BARE, str(path)], capability=capability)
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{level} [('input', 'f32', (2, 6))]\n"
    for capability in (75, 100, 91):
        done = run(["-c", BARE, str(path)], capability=capability)
        wanted = (
            f"it holds code for sm_80, sm_90 and for CPUs, and cuda:0 (Fake device 0, sm_{capability}) needs"
        )
        assert wanted in done.stderr and done.stderr.rstrip().endswith(f"sm_{capability}"), done.stderr
    done = run(["-c", BARE, str(path)], version=12080)
    assert "the driver is for CUDA 12.8: update NVIDIA's driver" in done.stderr or not done.returncode
    done = run(["-c", BARE, str(path)], devices=0)
    assert "CUDA_ERROR_NO_DEVICE" in done.stderr
    done = run(["-c", "import sys; sys.modules['cuda'] = None\n" + BARE, str(path)])
    assert "running on a GPU takes cuda-bindings: pip install cuda-bindings" in done.stderr
    done = run(["-c", BARE, str(path)], capacity=1024)
    assert "bytes of a GPU's memory: cuda:0" in done.stderr and "free" in done.stderr
    done = run(["-c", BARE, str(path)], LD_LIBRARY_PATH="")
    assert done.returncode == 0 or "libcuda.so.1" in done.stderr or "DEVICE" in done.stderr


@on_fake(devices=2)
def test_devices_and_their_limits_are_named(fake: Fake):
    with TemporaryDirectory() as folder:
        module, (model, x) = loader(folder), small()
        path = exported(folder, model, x)
        made = module.load(path, device="cuda:1")
        assert made.run(x.numpy()).shape == (2, 3) and made.device == "cuda:1"
        for device, words in {
            "cuda:2": "cuda:2 is not there: devices are counted from 0, and there are 2",
            "cuda:x": "a device is 'cpu', 'cuda' or 'cuda:N'",
            "tpu": "a device is 'cpu', 'cuda', not 'tpu'",
        }.items():
            with pytest.raises(module.ModelError, match=words):
                module.load(path, device=device)
        with pytest.raises(module.ModelError, match=r"of a GPU's memory: max_bytes=1,000"):
            module.load(path, max_bytes=1000, device="cuda")
        with pytest.raises(module.ModelError, match="threads and levels are of CPUs"):
            module.load(path, threads=2, device="cuda")
        for wrong in (x.numpy().astype(np.float64), np.ones((3, 6), np.float32)):
            with pytest.raises((TypeError, ValueError)):
                made.run(wrong)
        with pytest.raises(TypeError, match="load it where it is needed"):
            made.__reduce__()
        alone = exported(folder, model, x, targets=("cpu",))
        with pytest.raises(
            module.ModelError, match=r"it holds code for CPUs alone, and cuda:0 \(.*\) needs sm_90"
        ):
            module.load(alone, device="cuda")


@on_fake()
def test_a_forked_child_is_told(fake: Fake):
    with TemporaryDirectory() as folder:
        module, (model, x) = loader(folder), small()
        made = module.load(exported(folder, model, x), device="cuda")
        if (child := os.fork()) == 0:
            try:
                made.run(x.numpy())
            except module.ModelError as error:
                os._exit(0 if "forked" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


USED = (
    "cuDriverGetVersion", "cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName",
    "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuCtxGetCurrent", "cuCtxSetCurrent",
    "cuStreamCreate", "cuMemGetInfo", "cuMemAlloc", "cuModuleLoadData", "cuModuleGetFunction",
    "cuMemcpyHtoDAsync", "cuStreamSynchronize", "cuLaunchKernel", "cuMemcpyDtoHAsync",
)  # fmt: skip
AT_THE_END = ("cuCtxGetCurrent", "cuCtxSetCurrent", "cuStreamSynchronize")  # where nobody hears of an error


@on_fake(capacity=8 << 20)
def test_every_call_may_fail_and_leaves_nothing(fake: Fake):
    with TemporaryDirectory() as folder:
        module, (model, x) = loader(folder), small()
        path = exported(folder, model, x)
        for seed, function in enumerate(USED):
            for nth in (1, 2, 3):
                fake.seed(seed)
                fake.fail(function, OUT_OF_MEMORY, nth)
                before = fake.calls(function)
                try:
                    module.load(path, device="cuda").run(x.numpy())
                except module.ModelError as error:
                    assert "CUDA_ERROR_OUT_OF_MEMORY" in str(error), error
                else:
                    assert fake.calls(function) - before < nth or function in AT_THE_END
                    if function == "cuCtxSetCurrent":
                        continue  # to give back what there is takes a context
                gc.collect()
                assert set(fake.live().values()) == {0}, (function, nth, fake.live())


# ---- files that lie
def program(manifest: Any) -> Any:
    return manifest["gpus"][GPU]["main"]


def kernel(manifest: Any) -> Any:
    return manifest["gpus"][GPU]["kernels"][0]


def launch(manifest: Any) -> Any:
    return next(step for step in program(manifest)["steps"] if step[0] == "launch")


def copy(manifest: Any, *rest: Any) -> None:
    program(manifest)["steps"].append(["copy", *rest])


LIES = [
    (lambda m: m.update(gpus=[]), "GPUs"),
    (lambda m: m["gpus"].update({"../x": 0}), "GPUs"),
    (lambda m: m["gpus"].update({GPU: None}), "the cubins of sm_90"),
    (lambda m: m["gpus"][GPU].update(cubins="graph.txt"), "the cubins of sm_90"),
    (lambda m: m["gpus"][GPU].pop("kernels"), "kernels of sm_90"),
    (lambda m: m["gpus"][GPU]["kernels"].append(kernel(m)), "kernels of sm_90"),
    (lambda m: kernel(m).update(name="other"), "has no kernel other"),
    (lambda m: kernel(m).update(name="a b"), "kernels of sm_90"),
    (lambda m: kernel(m).update(at=1), "is damaged"),
    (lambda m: kernel(m).update(at=1 << 40), "lies beyond the cubins"),
    (lambda m: kernel(m).update(size=kernel(m)["size"] - 1), "is damaged"),
    (lambda m: kernel(m).update(size=-1), "kernels of sm_90"),
    (lambda m: kernel(m).update(threads=kernel(m)["threads"] * 2), "runs in blocks of"),
    (lambda m: kernel(m).update(threads=0), "kernels of sm_90"),
    (lambda m: kernel(m).update(shared=1 << 30), "kernels of sm_90"),
    (lambda m: kernel(m).update(scratch=1 << 40), "of a GPU's memory"),
    (lambda m: kernel(m)["aligned"].append(False), "takes .* parameters, not"),
    (lambda m: kernel(m)["aligned"].pop(), "takes .* parameters, not"),
    (lambda m: program(m)["params"].pop(), "main of sm_90"),
    (lambda m: program(m).update(arena=1 << 46), "of a GPU's memory"),
    (lambda m: program(m).update(arena=-1), "programs of sm_90"),
    (lambda m: program(m).update(checks=1), "checks of sm_90"),
    (lambda m: program(m).update(results=[]), "has fewer results"),
    (lambda m: program(m).update(constants=["nothing"]), "lacks the weight 'nothing'"),
    (lambda m: program(m).update(steps=[["jump"]]), "a step"),
    (lambda m: m["gpus"][GPU].update(kept=[99]), "weights of sm_90"),
    (lambda m: m["gpus"][GPU]["kept"].reverse(), "is not what its code takes"),
    (lambda m: launch(m).__setitem__(1, 99), "a launch"),
    (lambda m: launch(m).__setitem__(2, 0), "the grid of"),
    (lambda m: launch(m).__setitem__(2, 1 << 31), "the grid of"),
    (lambda m: launch(m)[3].pop(), "takes . pointers"),
    (lambda m: launch(m)[3].__setitem__(0, ["param", 0, 1 << 20]), "are not inside param 0"),
    (lambda m: launch(m)[3].__setitem__(0, ["param", 0, 4]), "takes an aligned pointer"),
    (lambda m: launch(m)[3].__setitem__(0, ["param", 99, 0]), "there is no param 99"),
    (lambda m: launch(m)[3].__setitem__(0, ["result", -1, 0]), "a place"),
    (lambda m: launch(m)[3].__setitem__(0, ["host", 0, 0]), "a place"),
    (lambda m: copy(m, ["param", 0, 0], ["result", 0, 0], 1 << 20), "are not inside"),
    (lambda m: copy(m, ["result", 0, 0], ["param", 0, 0], 4), "is written to"),
]  # fmt: skip


@on_fake()
def test_what_lies_is_refused_before_anything_is_launched(fake: Fake):
    with TemporaryDirectory() as folder:
        module, (model, x) = loader(folder), small()
        path = exported(folder, model, x)
        members = split(path.read_bytes())
        path.write_bytes(signed(members))
        module.load(path, device="cuda").run(x.numpy())
        modules, launches = fake.calls("cuModuleLoadData"), fake.calls("cuLaunchKernel")
        for lie, words in LIES:
            manifest = json.loads(members["manifest.json"])
            lie(manifest)
            path.write_bytes(signed(members, manifest))
            try:
                module.load(path, device="cuda")
            except module.ModelError as error:
                assert re.search(words, str(error)), (words, error)
            else:
                raise AssertionError(words)
        assert (fake.calls("cuModuleLoadData"), fake.calls("cuLaunchKernel")) == (modules, launches)
        path.write_bytes(signed({name: data for name, data in members.items() if name != f"{GPU}.cubins"}))
        with pytest.raises(module.ModelError, match="are missing"):
            module.load(path, device="cuda")


@on_fake()
def test_damaged_files_are_refused_or_launch_within_their_memory(fake: Fake):
    """Whatever is altered in what a file says and in its cubins, the fake refuses what harms a driver."""

    def inside(one: Launch) -> None:
        assert all(fake.is_device(address) for address in one.addresses)

    rng = random.Random(7)
    fake.on_launch(inside)
    with TemporaryDirectory() as folder:
        module, (model, x) = loader(folder), small()
        path, said = exported(folder, model, x), []
        members = split(path.read_bytes())
        for _ in range(400):
            parts, manifest = dict(members), json.loads(members["manifest.json"])
            if rng.random() < 0.8:
                manifest["gpus"] = altered(rng, manifest["gpus"])
            else:
                data = bytearray(parts[f"{GPU}.cubins"])
                for _ in range(rng.randrange(1, 9)):
                    data[rng.randrange(len(data))] = rng.randrange(256)
                parts[f"{GPU}.cubins"] = bytes(data[: rng.choice((len(data), rng.randrange(len(data))))])
            path.write_bytes(signed(parts, manifest))
            try:
                module.load(path, device="cuda").run(x.numpy())
                said.append("taken")
            except module.ModelError:
                said.append("refused")
        gc.collect()
        assert set(fake.live().values()) == {0}
        assert said.count("refused") > 200 and said.count("taken") > 10


# ---- what can't be written
def test_what_a_file_has_no_code_for_is_refused(tmp_path):
    model, x = small()
    path = tmp_path / "model.lam"
    with pytest.raises(ExportError, match="code for sm_90 is of the example's sizes, and dynamic is given"):
        jit.export(model, path, x, targets=["cpu", GPU], dynamic={0: {0: "n"}})
    with pytest.raises(ExportError, match=r"export\(targets\): special_zeta has no kernel for a GPU"):
        jit.export(lambda x: lamina.special.zeta(x.abs() + 2, x.abs() + 1), path, x, targets=["cpu", GPU])
    for targets in (["gfx942"], ["sm_91"], "sm_90", ["cuda"], [90]):
        with pytest.raises(ArgumentError, match=r"export\(targets\): .* is a list of cpu, sm_75"):
            jit.export(model, path, x, targets=targets)
    with pytest.raises(ArgumentError, match=r"model.onnx holds no code for GPUs"):
        jit.export(model, tmp_path / "model.onnx", x, targets=["cpu", GPU])
    assert not path.exists()


def test_tuning_keeps_the_code_for_gpus(tmp_path):
    path = exported(str(tmp_path), *small())
    before = split(path.read_bytes())
    jit.export.__globals__["tune_file"](path, 0.1, told=lambda one: None)
    after = split(path.read_bytes())
    assert after[f"{GPU}.cubins"] == before[f"{GPU}.cubins"]
    assert json.loads(after["manifest.json"])["gpus"] == json.loads(before["manifest.json"])["gpus"]


def test_files_for_gpus_run_on_the_cpu_as_others_do(tmp_path):
    model, x = small()
    path = exported(str(tmp_path), model, x)
    for native in (True, False):
        assert (jit.load(path, native=native)(x) - model(x)).abs().max() < 1e-5


def test_no_name_of_the_loader_is_given_twice():
    """Its parts are modules in Lamina and one module in a file: what one defines none may define anew."""
    text, names = artifact.loader_text().decode(), []
    for line in text.splitlines():
        if line.startswith(("def ", "class ")):
            names.append(line.split()[1].split("(")[0].rstrip(":"))
    assert len(names) == len(set(names))
    assert "from ." not in text and text.count("from __future__") == 1
