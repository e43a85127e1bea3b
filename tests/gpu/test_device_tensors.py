"""Tensors whose memory is a device's: moves, views, writes, gradients, modules, training, what is refused.

On the fake driver: calls to it are counted; of kernels this shows that the interpreter's results are right.
"""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import numpy as np
import pytest
from fake_cuda import Fake, case, missing, on_fake, run_case

import lamina
import lamina.nn.functional as F
from lamina import jit, nn, optim
from lamina.facade import amp
from lamina.ir.errors import ArgumentError, ArgumentValueError, DeviceError, DimError
from lamina.runtime import modes
from lamina.runtime.cuda.machine import machine
from lamina.runtime.on_device import OnDevice


def interpreted(fake: Fake) -> list[str]:
    from cuda_interpreting import interpret_launches

    return interpret_launches(fake)


def same(found, wanted) -> None:
    np.testing.assert_allclose(found.detach().cpu().numpy(), wanted.detach().numpy(), rtol=1e-5, atol=1e-6)


@on_fake(devices=2)
def test_tensors_move_to_a_device_and_back(fake: Fake):
    interpreted(fake)
    x = lamina.randn(3, 4)
    y = x.to("cuda")
    assert y.is_cuda and not y.is_cpu and y.get_device() == 0 and str(y.device) == "cuda:0"
    assert y.device is x.cuda().device and y.to("cuda:0") is y and x.to("cpu") is x
    assert y.shape == (3, 4) and y.stride() == (4, 1) and y.is_contiguous() and y.storage_offset() == 0
    assert fake.is_device(y.data_ptr(), y.nbytes) and y[1:].data_ptr() == y.data_ptr() + 16
    np.testing.assert_array_equal(y.cpu().numpy(), x.numpy())
    other = y.to("cuda:1")
    assert other.get_device() == 1
    np.testing.assert_array_equal(other.numpy(force=True), x.numpy())
    assert y.to(lamina.float64).dtype is lamina.float64 and y.to("cpu", lamina.float64).is_cpu
    for dtype in (lamina.float16, lamina.bfloat16, lamina.int8, lamina.uint8, lamina.int64, lamina.bool):
        wanted = x.to(dtype)
        assert (y.to(dtype).cpu() == wanted).all() and (wanted.cuda().cpu() == wanted).all()
    assert lamina.tensor(2.5, device="cuda").item() == 2.5 and lamina.zeros(
        0, 3, device="cuda"
    ).cpu().shape == (0, 3)
    assert y[1, 2].item() == x[1, 2].item() and y.tolist() == x.tolist() and bool((y * 0 == 0).all())
    assert f"{y[0, 0]:.3f}" == f"{x[0, 0]:.3f}" and "device='cuda:0'" in repr(y)


@on_fake(devices=2)
def test_a_number_is_a_device_where_there_are_devices(fake: Fake):
    x = lamina.arange(3.0)
    assert str(x.to(1).device) == str(x.cuda(1).device) == str(lamina.device(1)) == "cuda:1"
    assert str(nn.Linear(1, 1).to(1).weight.device) == "cuda:1"
    assert lamina.cuda.get_device_name() == lamina.cuda.get_device_name(0) == "Fake device 0"
    lamina.cuda.set_device(1)
    assert lamina.cuda.current_device() == 1 and lamina.cuda.get_device_name() == "Fake device 1"
    about = lamina.cuda.get_device_properties(0)
    assert (about.major, about.minor) == lamina.cuda.get_device_capability(0)


@on_fake()
def test_tensors_are_made_on_a_device(fake: Fake):
    interpreted(fake)
    same(lamina.arange(5, device="cuda"), lamina.arange(5))
    same(lamina.full((2, 3), 1.5, device="cuda"), lamina.full((2, 3), 1.5))
    same(lamina.eye(3, device="cuda"), lamina.eye(3))
    x = lamina.ones(2, 3, device="cuda")
    for made in (
        lamina.zeros_like(x),
        lamina.empty_like(x),
        lamina.rand_like(x),
        x.new_zeros(2),
        x.new_tensor([1]),
    ):
        assert made.is_cuda
    assert lamina.zeros_like(x, device="cpu").is_cpu and lamina.as_tensor(x, device="cpu").is_cpu
    with lamina.device("cuda"):
        assert lamina.ones(2).is_cuda and lamina.tensor([1, 2]).is_cuda and lamina.randn(2).is_cuda
        assert lamina.ones(2, device="cpu").is_cpu
    assert lamina.ones(2).is_cpu
    lamina.set_default_device("cuda")
    assert lamina.ones(2).is_cuda and next(nn.Linear(2, 2).parameters()).is_cuda
    lamina.set_default_device("cpu")
    drawn = []
    for device in ("cpu", "cuda"):
        lamina.manual_seed(3)
        x = lamina.zeros(4, device=device)
        drawn.append(
            [lamina.randn(2, 3, device=device), lamina.randint(0, 9, (4,), device=device), x.uniform_()]
        )
        drawn[-1] += [lamina.randperm(5, device=device), nn.functional.dropout(lamina.ones(8, device=device))]
    for y, z in zip(*drawn, strict=True):
        np.testing.assert_array_equal(y.numpy(force=True), z.numpy(force=True))


@on_fake()
def test_views_and_writes_share_memory(fake: Fake):
    interpreted(fake)
    x, y = lamina.arange(24.0).reshape(4, 6), lamina.arange(24.0, device="cuda").reshape(4, 6)
    for z in (x, y):
        z[1:3, ::2] += 10
        z.t()[0] = 7.0
        z[:, 1].mul_(2)
        z[0, 0] = -1
        z.view(2, 12)[1].zero_()
        z[z > 20] = 3.0
        z[[0, 3]] = lamina.ones(6, device=z.device)
        z.add_(lamina.ones((), device="cpu"))  # a number's tensor goes anywhere
        z.copy_(z.flip(0))
        z[:, :3].copy_(lamina.arange(3.0))  # from the CPU
    same(y, x)
    assert y.t().contiguous().is_contiguous() and not y.t().is_contiguous()
    same(y.t().reshape(-1), x.t().reshape(-1))
    same(y.expand(2, 4, 6).sum(0), x.expand(2, 4, 6).sum(0))
    same(y.unfold(1, 3, 2), x.unfold(1, 3, 2))
    version = y._version
    y[0].add_(1)
    assert y._version == version + 1
    x.cpu().copy_(y)
    same(y, x)
    for shape in ((3, 9), (2, 2)):
        y, x = y.clone(), x.clone()
        same(y.resize_(shape), x.resize_(shape))


@on_fake()
def test_gradients_flow_between_devices(fake: Fake):
    interpreted(fake)
    w = lamina.randn(4, 4, requires_grad=True)
    x = lamina.randn(3, 4, device="cuda", requires_grad=True)
    (x @ w.cuda() + w.cuda().t().sum(0)).tanh().sum().backward()
    assert w.grad.is_cpu and x.grad.is_cuda
    v, z = w.detach().requires_grad_(), x.detach().cpu().requires_grad_()
    (z @ v + v.t().sum(0)).tanh().sum().backward()
    same(w.grad, v.grad)
    same(x.grad, z.grad)
    (g,) = lamina.autograd.grad((x**3).sum(), x, create_graph=True)
    (h,) = lamina.autograd.grad(g.sum(), x)
    same(h, 6 * z)
    for _ in range(2):  # into what is there
        (x * 2).sum().backward()
    same(x.grad, z.grad + 4)
    seen = []
    x.register_hook(lambda gradient: seen.append(gradient.device))
    (x * x).sum().backward()
    assert seen == [x.device]
    y = x * 2
    y.mul_(x)
    y[0].add_(1)
    x.grad = None
    y.sum().backward()
    same(x.grad, 4 * z)
    with pytest.raises(lamina.ir.errors.InplaceError, match="saved for backward was changed"):
        y = x * x
        with lamina.no_grad():
            x.add_(1)
        y.sum().backward()


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.2), nn.Linear(64, 10),
    )  # fmt: skip


OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    "AdamW": lambda p: optim.AdamW(p, lr=1e-2),
    "RMSprop": lambda p: optim.RMSprop(p, lr=1e-3),
}


def trained(device: str, make, steps: int = 3) -> tuple[list[float], nn.Module]:
    lamina.manual_seed(0)
    model = network().to(device)
    optimizer = make(model.parameters())
    losses = []
    for _ in range(steps):
        x, y = lamina.randn(6, 1, 8, 8).to(device), lamina.randint(0, 10, (6,)).to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, model


@pytest.mark.sampled(2)
@on_fake()
def test_a_network_trains_on_a_device_as_on_the_cpu(fake: Fake):
    interpreted(fake)
    for name, make in OPTIMIZERS.items():
        found, model = trained("cuda", make)
        wanted, beside = trained("cpu", make)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, err_msg=name)
        assert all(p.is_cuda for p in model.parameters())
        same(model[6].weight, beside[6].weight)  # of what lies before a norm, gradients are rounding alone


@on_fake()
def test_an_op_is_one_launch_and_waits_for_nothing(fake: Fake):
    ran = interpreted(fake)
    x = lamina.randn(5, 7, device="cuda")
    w = lamina.randn(7, 3, device="cuda")

    def ops():
        return (x * 2.5, x + x, x.relu(), x @ w, x.sum(1), x.softmax(-1), x[1:4].exp())

    kept = ops()
    machine().stream.synchronize()
    names = ("cuLaunchKernel", "cuStreamSynchronize", "cuCtxSynchronize", "cuMemAlloc", "cuEventSynchronize")
    names = (*names, "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemFree")
    before, launched = {name: fake.calls(name) for name in names}, len(ran)
    kept = ops()
    after = {name: fake.calls(name) - before[name] for name in names}
    # a part that begins where no row of 16 bytes does is copied first
    assert (
        after == {**dict.fromkeys(names, 0), "cuLaunchKernel": len(kept)} or after["cuLaunchKernel"] == 8
    ), after
    assert {name: n for name, n in after.items() if n and name != "cuLaunchKernel"} == {}
    machine().stream.synchronize()
    assert len(ran) - launched == after["cuLaunchKernel"]


@on_fake()
def test_batches_of_all_sizes_have_one_machine_code(fake: Fake):
    ran = interpreted(fake)
    layer = nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.LayerNorm(20), nn.Linear(20, 5)).cuda()
    beside = copy.deepcopy(layer).cpu()
    kinds = []
    for rows in (33, 35, 41, 47, 63):  # by tiles of one size
        x, before = lamina.randn(rows, 12), len(ran)
        same(layer(x.cuda()).softmax(-1), beside(x).softmax(-1))
        kinds.append(ran[before:])
    assert all(names == kinds[0] for names in kinds) and len(kinds[0]) == 5
    # what is no batch stands in the text at first, and so does one row, whose axis is left out
    for shape in ((33, 13), (1, 12), (0, 12)):
        x = lamina.randn(*shape)
        same((x.cuda() * 2).exp().sum(1), (x * 2).exp().sum(1))
    images = lamina.randn(3, 2, 7, 9)
    for count in (2, 3):
        x = images[:count]
        same(nn.functional.avg_pool2d(x.cuda(), 2), nn.functional.avg_pool2d(x, 2))
        same(x.cuda().flip(0), x.flip(0))
        same(x.cuda().cumsum(0), x.cumsum(0))


@on_fake()
def test_numbers_that_ops_are_told_are_compiled_a_few_times(fake: Fake):
    ran = interpreted(fake)
    loaded = []
    for n in range(3, 24):
        for op, given in ((lamina.linspace, (0, n / 7, n)), (lamina.arange, (n, n + 5)),
                          (lamina.full, ((n,), n / 7))):  # fmt: skip
            found, wanted = op(*given, device="cuda"), op(*given)
            assert found.is_cuda and found.tolist() == wanted.tolist()
        loaded.append(len(ran))
    assert loaded[15] > 20 and loaded[-1] == loaded[15]
    assert lamina.full((600, 600), 3.5, device="cuda").sum().item() == 3.5 * 360_000  # 1.4 MB: a kernel


@case
def grows(fake: Fake) -> None:
    """Eagerly and traced: behind the fourth length nothing is compiled, but where tiles change."""
    ran = interpreted(fake)
    layer = nn.TransformerEncoderLayer(12, 2, 20, 0.0, batch_first=True).cuda()
    beside = copy.deepcopy(layer).cpu()
    traced = jit.trace(layer, budget=1e9)  # which records each length
    for run in (layer, traced):
        kinds = []
        for length in (33, 35, 37, 39, 43, 45, 47):
            x, before = lamina.randn(1, length, 12), len(ran)
            for _ in range(2):  # a new size is recorded
                made = run(x.cuda())
            same(made, beside(x))
            kinds.append(set(ran[before:]))
        assert len(kinds[0]) > 8 and kinds[0] != kinds[5]
        assert kinds[5] == kinds[6] and not kinds[5] - set().union(*kinds[:5])
    assert traced.counts()["served"] >= 6


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.timeout(600)
def test_a_text_that_grows_has_one_machine_code(tmp_path):
    run_case(grows, LAMINA_CACHE_DIR=tmp_path)  # what is on disk counts as met


@on_fake()
def test_memory_goes_with_the_last_tensor(fake: Fake):
    interpreted(fake)
    allocator = machine().allocator
    before = allocator.statistics()["allocated_bytes.all.current"]
    x = lamina.zeros(1000, device="cuda")
    y = x[10:20]
    del x
    assert allocator.statistics()["allocated_bytes.all.current"] >= before + 4000
    assert y.sum().item() == 0
    del y
    assert allocator.statistics()["allocated_bytes.all.current"] <= before + 4096
    z = lamina.ones(3, device="cuda", requires_grad=True)
    for _ in range(3):
        (z * z).sum().backward()
        z.grad = None
    now = allocator.statistics()["allocated_bytes.all.current"]
    for _ in range(20):
        (z * z).sum().backward()
        z.grad = None
    assert allocator.statistics()["allocated_bytes.all.current"] == now


@on_fake()
def test_an_index_out_of_range_is_told_at_the_next_wait(fake: Fake):
    interpreted(fake)
    x = lamina.ones(5, 3, device="cuda")
    waits = fake.calls("cuStreamSynchronize")
    picked = x[lamina.tensor([0, 7], device="cuda")]  # the line
    assert fake.calls("cuStreamSynchronize") == waits
    with pytest.raises(DimError, match=r"(?s)index is out of range.*test_device_tensors.py:\d+  picked = x"):
        picked.sum().item()
    assert (x + 1).sum().item() == 30  # told once
    with pytest.raises(DimError):
        nn.functional.embedding(lamina.tensor([9], device="cuda"), x).tolist()


@on_fake(devices=2)
def test_what_does_not_go_together_is_refused(fake: Fake):
    interpreted(fake)
    x = lamina.ones(2, 3, device="cuda")
    for call in (
        lambda: x + lamina.ones(2, 3),
        lambda: lamina.ones(2, 3) @ lamina.ones(3, 1, device="cuda"),
        lambda: x * lamina.ones(3, device="cuda:1"),
        lambda: nn.Linear(3, 2)(x),
    ):
        with pytest.raises(
            DeviceError, match=r"Expected all tensors to be on the same device, but found at least"
        ):
            call()
    with pytest.raises(
        ArgumentError, match=r"can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu\(\)"
    ):
        x.numpy()
    with pytest.raises(ArgumentError, match="can't convert"):
        np.asarray(x)
    with pytest.raises(DeviceError, match="there is no device cuda:2 here"):
        x.to("cuda:2")
    assert x[1].untyped_storage().data_ptr() == x.data_ptr() and x[1].untyped_storage().nbytes() == 24
    with pytest.raises(RuntimeError, match="Unsupported device"):
        np.from_dlpack(x)
    assert isinstance(x._data, OnDevice)
    with pytest.raises(DeviceError, match="NumPy can't compute"):
        np.add(x._data, 1)
    # numbers, and indices of the CPU
    same(x * lamina.tensor(2.0) + 1, lamina.full((2, 3), 3.0))
    same(x[lamina.tensor([1])], lamina.ones(1, 3))


@on_fake()
def test_what_has_no_kernel_goes_through_the_host_and_says_so_once(fake: Fake):
    interpreted(fake)
    x = lamina.tensor([3.0, 1.0, 3.0], device="cuda")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            values, places = x.mode()
    assert [str(w.message) for w in said] == [
        "mode is computed on the host, which its operands on the GPU are copied to and from"
    ]
    assert said[0].filename == __file__
    assert values.is_cuda and values.item() == 3 and places.item() == 2


@on_fake()
def test_tensors_of_a_device_are_kept_and_copied(fake: Fake):
    interpreted(fake)
    x = lamina.randn(2, 3, device="cuda")
    twin = copy.deepcopy(x)
    assert twin.is_cuda and twin.data_ptr() != x.data_ptr()
    same(twin, x.cpu())
    back = pickle.loads(pickle.dumps(x))
    assert back.device == x.device
    same(back, x.cpu())
    model = nn.Linear(3, 2).cuda()
    saved = io.BytesIO()
    lamina.save({"model": model.state_dict(), "view": x.t()}, saved)
    saved.seek(0)
    loaded = lamina.load(saved, map_location="cpu")
    same(loaded["view"], x.t().cpu())
    same(model.weight, loaded["model"]["weight"])
    with lamina.no_grad():
        model.weight.zero_()
    model.load_state_dict(loaded["model"])
    assert model.weight.is_cuda
    same(model.weight, loaded["model"]["weight"])
    assert copy.deepcopy(model).weight.is_cuda and model.cpu().weight.is_cpu
    itself: list = [{"x": x, "again": x}]
    itself.append(itself)
    there = lamina.load(written(itself), map_location="cuda")
    assert there[1] is there and there[0]["x"] is there[0]["again"] and there[0]["x"].is_cuda
    with pytest.raises(ArgumentValueError, match="must be a file path"):
        lamina.load(written(x), map_location="cuda", mmap=True)


def written(value: object) -> io.BytesIO:
    """What `save` made of a value, to be read."""
    made = io.BytesIO()
    lamina.save(value, made)
    made.seek(0)
    return made


@on_fake(devices=2)
def test_gradients_on_two_devices_are_unscaled_and_clipped_together(fake: Fake):
    interpreted(fake)
    params = [nn.Parameter(lamina.ones(3, device=f"cuda:{i}")) for i in (0, 1)]
    optimizer = lamina.optim.SGD(params, lr=0.5)
    scaler = lamina.amp.GradScaler("cuda", init_scale=4.0)
    for last, left in ((1.0, 0.75), (float("inf"), 0.75)):
        for p, g in zip(params, (4.0, 4.0 * last), strict=True):
            p.grad = lamina.full((3,), g, device=p.device)
        scaler.unscale_(optimizer)
        if last == 1.0:
            norm = nn.utils.clip_grad_norm_(params, 6.0**0.5 / 2)
            assert norm.item() == pytest.approx(6.0**0.5)
        scaler.step(optimizer)
        scaler.update()
        for p in params:
            np.testing.assert_allclose(p.detach().cpu().numpy(), [left] * 3, rtol=1e-5)


@on_fake()
def test_functions_of_functions_run_on_a_device(fake: Fake):
    interpreted(fake)
    x, w = lamina.randn(3, 4), lamina.randn(4, 2)
    f = lambda a, b: (a @ b).tanh().sum()  # noqa: E731
    wanted = lamina.func.grad(f, argnums=1)(x, w)
    same(lamina.func.grad(f, argnums=1)(x.cuda(), w.cuda()), wanted)
    same(lamina.func.vmap(lambda a: (a * a).sum())(x.cuda()), (x * x).sum(1))
    same(lamina.func.jvp(lambda a: a.sin(), (x.cuda(),), (x.cuda(),))[1], x.cos() * x)


@on_fake()
def test_autocast_has_a_state_and_lists_for_each_kind_of_device(fake: Fake):
    interpreted(fake)
    host, w = lamina.randn(3, 4), lamina.randn(4, 4)
    x, v = host.cuda(), w.cuda()

    def low() -> list[str]:
        return [str((a @ b).dtype).rpartition(".")[2] for a, b in ((host, w), (x, v))]

    def states() -> list[bool]:
        return [amp.is_autocast_enabled(kind) for kind in ("cpu", "cuda")]

    assert low() == ["float32", "float32"]
    with lamina.autocast("cuda"):
        assert low() == ["float32", "float16"] and states() == [False, True]
        with lamina.autocast("cpu"):
            assert low() == ["bfloat16", "float16"] and states() == [True, True]
            with lamina.autocast("cuda", enabled=False):
                assert low() == ["bfloat16", "float32"] and states() == [True, False]
        h = x @ v
        full = (F.softmax(h, -1), h.exp(), h.sum(), h**2, F.layer_norm(h, (4,)), F.softplus(h), h.norm())
        assert all(y.dtype is lamina.float32 for y in full)
        assert all(y.dtype is lamina.float16 for y in (h.mean(), h.relu(), F.gelu(h), h.std(), F.silu(h)))
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(h.sigmoid(), h.sigmoid())
    with lamina.autocast("cpu"):
        assert low() == ["bfloat16", "float32"] and (host @ w).softmax(-1).dtype is lamina.bfloat16
    amp.set_autocast_dtype("cuda", lamina.bfloat16)
    amp.set_autocast_enabled("cuda", True)
    assert low() == ["float32", "bfloat16"] and amp.get_autocast_dtype("cpu") is lamina.bfloat16
    amp.set_autocast_enabled("cuda", False)
    amp.set_autocast_dtype("cuda", lamina.float16)
    assert low() == ["float32", "float32"] and amp.get_autocast_dtype("cuda") is lamina.float16
    assert not modes.CHANGED


APART = {
    "SGD": {"momentum": 0.9}, "Adam": {"amsgrad": True}, "RMSprop": {"centered": True}, "AdamW": {},
    "Adagrad": {}, "Adadelta": {}, "Adamax": {}, "NAdam": {}, "RAdam": {}, "Rprop": {}, "ASGD": {},
    "Adafactor": {}, "Muon": {},
}  # fmt: skip


@on_fake(devices=2)
def test_an_optimizer_has_parameters_on_two_devices_and_the_cpu(fake: Fake):
    interpreted(fake)

    def trained(name: str, places: tuple[str, ...]) -> list:
        lamina.manual_seed(0)
        params = []
        for place in places:
            value, grad = lamina.randn(3, 4), lamina.randn(3, 4)
            params.append(nn.Parameter(value.to(place)))
            params[-1].grad = grad.to(place)
        optimizer = getattr(optim, name)(params, lr=0.1, **APART[name])
        for _ in range(2):
            optimizer.step()
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        optimizer.step()
        for p, state in optimizer.state.items():
            tensors = [x for x in state.values() if isinstance(x, lamina.Tensor)]
            assert all(x.device == p.device or x.is_cpu and not x.ndim for x in tensors)
        return params

    for name in APART:
        there = trained(name, ("cuda:0", "cuda:1", "cpu", "cuda:0"))
        for found, wanted in zip(there, trained(name, ("cpu",) * 4), strict=True):
            same(found, wanted)
