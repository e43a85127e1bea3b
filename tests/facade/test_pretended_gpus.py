"""LAMINA_PRETEND_GPUS: GPUs that are names of this CPU, for programs that insist on some."""

import os
import subprocess
import sys
import textwrap

import pytest

BEGIN = """
import copy, io, re, threading, time, warnings
import lamina as torch
from lamina import nn

def refused(kind, said, f):
    try:
        f()
    except kind as error:
        assert said in str(error), error
    else:
        raise AssertionError(f"not refused: {said}")
"""


def run(tmp_path, program, gpus=None, status=0):
    """A program's output and errors, in a process that is told of so many GPUs."""
    environ = {name: value for name, value in os.environ.items() if name != "LAMINA_PRETEND_GPUS"}
    environ |= {} if gpus is None else {"LAMINA_PRETEND_GPUS": gpus}
    script = tmp_path / "program.py"
    script.write_text(BEGIN + textwrap.dedent(program))
    words = [sys.executable, str(script)]
    done = subprocess.run(words, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


TENSORS = """
assert torch.device(1) == torch.device("cuda:1") and str(torch.device(0)) == "cuda:0"
net = nn.Linear(2, 3, device="cuda:1")
for x in (
    torch.zeros(2).to(1), torch.zeros(2).to(device=0), torch.ones(2).cuda(1),
    torch.ones(2).cuda(non_blocking=True), torch.FloatTensor(2, device="cuda"),
    torch.zeros(2, device=1), torch.rand(2, device="cuda"), torch.zeros_like(torch.ones(2), device="cuda:1"),
    torch.tensor([1.0], device="cuda:0"), torch.as_tensor([1.0], device=1), torch.Tensor(2, device="cuda:0"),
    torch.ones(2).new_full((2,), 1.0, device="cuda"), torch.tril_indices(2, 2, device="cuda"),
    torch.hann_window(3, device=0), torch.empty(2, pin_memory=True), torch.ones(2).pin_memory(),
    torch.sparse_coo_tensor([[0]], [1.0], (2,), device="cuda"),
    torch.nested.nested_tensor([torch.ones(1)], device="cuda"),
    net.weight, net.to(0).weight, net.cuda(1).weight, nn.LSTM(2, 2).to("cuda:1", torch.float64).weight_hh_l0,
):
    assert x.device == torch.device("cpu") and not x.is_cuda and x.get_device() == -1, x
x = torch.ones(2)
assert x.to("cuda:1") is x and x.to(1, torch.float64).dtype is torch.float64
assert torch.randn(2, device="cuda", generator=torch.Generator("cuda:1")).shape == (2,)
traced = torch.jit.trace(lambda x: x.cuda(1) + torch.ones(2, device=x.device) + torch.ones(2, device=1))
assert traced(x).tolist() == [3, 3]
with torch.device("cuda:1"):
    assert torch.zeros(1).is_cpu
torch.set_default_device("cuda")
assert torch.zeros(1).is_cpu and torch.get_default_device() == torch.device("cpu")
assert torch.UntypedStorage(3, device="cuda").cuda(1).device.type == "cpu"
loader = torch.utils.data.DataLoader(torch.arange(4.0), pin_memory=True)
assert [b.to(1, non_blocking=True).item() for b in loader] == [0, 1, 2, 3]
x.record_stream(torch.cuda.current_stream())

for f in (
    lambda: x.to(2), lambda: x.cuda(2), lambda: torch.zeros(1, device="cuda:2"),
    lambda: nn.Linear(2, 2).to(2),
    lambda: torch.cuda.set_device(2), lambda: torch.device(2).__enter__(), lambda: torch.Generator(2),
):
    refused(torch.DeviceError, "there is no device cuda:2 here: 2 are pretended", f)
for f in (lambda: torch.device(-1), lambda: torch.device(True), lambda: x.to(-1)):
    refused(torch.DeviceError, "no such device", f)
refused(NotImplementedError, "has no values", lambda: torch.zeros(2, device="meta").cuda())
"""


def test_tensors_stay_on_the_cpu_and_say_so(tmp_path):
    _, errors = run(tmp_path, TENSORS, "2")
    said = [line for line in errors.splitlines() if "Warning" in line]
    assert len(said) == 1 and "program.py" in said[0], errors
    assert "cuda:0 to cuda:1 are names of this CPU (LAMINA_PRETEND_GPUS=2)" in said[0]


ROOMS = """
warnings.simplefilter("ignore")
cuda, accelerator = torch.cuda, torch.accelerator
for room in (cuda, accelerator):
    assert room.is_available() and room.device_count() == 2 and room.memory_allocated() == 0
    room.synchronize(), room.empty_cache(), room.reset_peak_memory_stats(1)
    assert room.memory_stats()["allocated_bytes.all.peak"] == room.max_memory_reserved(0) == 0
assert accelerator.current_accelerator(check_available=True) == torch.device("cuda")
assert torch.get_device_module() is cuda and cuda.is_bf16_supported() and cuda.is_initialized()
assert torch.backends.cuda.is_built() and not torch.backends.cudnn.is_available()

# the current device, by thread
assert cuda.current_device() == 0
cuda.set_device("cuda:1")
assert accelerator.current_device_index() == 1 == cuda.current_stream().device_index
with cuda.device(0):
    assert cuda.get_device_name() == "CPU, pretending to be cuda:0"
    with accelerator.device_index(1), cuda.device_of(torch.ones(1)), cuda.device(None):
        assert accelerator.current_device_index() == 1
seen = []
thread = threading.Thread(target=lambda: seen.append(cuda.current_device()))
thread.start(), thread.join()
assert seen == [0] and cuda.current_device() == 1
accelerator.set_device_index(torch.device(0)), accelerator.set_device_index(-1)
assert cuda.current_device() == 0

about = cuda.get_device_properties("cuda:1")
assert about.name.endswith("cuda:1") and about.total_memory > 1 << 28 and about.multi_processor_count >= 1
assert (about.major, about.minor) == cuda.get_device_capability(1) == (8, 0)
free, whole = cuda.mem_get_info()
assert 0 < free <= whole == about.total_memory == accelerator.get_memory_info()[1]
assert torch.bfloat16 in accelerator.get_device_capability()["supported_dtypes"]

# streams and events
first, side = cuda.current_stream(), cuda.Stream(1)
assert first == cuda.default_stream() != side and isinstance(side, torch.Stream) and side.query()
with cuda.stream(side), cuda.stream(None):
    assert accelerator.current_stream() == side and cuda.current_device() == 1
    begun, ended = cuda.Event(True), torch.Event("cuda:1", enable_timing=True)
    side.record_event(begun)
    time.sleep(0.02)
    ended.record()
    ended.synchronize()
    side.wait_event(begun), side.wait_stream(first)
    assert 20 <= begun.elapsed_time(ended) < 20_000
with side:
    assert cuda.current_stream() == side
assert cuda.current_stream() == first and cuda.current_device() == 0
refused(ValueError, "must be recorded", lambda: begun.elapsed_time(cuda.Event(enable_timing=True)))
refused(ValueError, "enable_timing=True", lambda: begun.elapsed_time(cuda.Event()))
late = torch.jit.trace(lambda x: (ended.record(), x + 1)[1])
at = ended._at
late(torch.ones(1)), late(torch.ones(1))
assert ended._at > at  # what was recorded would not note the time once more
chooses = torch.jit.trace(lambda x: (cuda.set_device(1), x + cuda.current_device())[1])
for _ in range(3):
    cuda.set_device(0)
    assert chooses(torch.ones(1)).item() == 2 == cuda.current_device() + 1
cuda.set_device(0)
timed = torch.jit.trace(lambda x: (cuda.synchronize(), x + 1)[1])
timed(torch.ones(1)), timed(torch.ones(1))
assert timed.counts()["served"] == 1

# random numbers are the CPU's
cuda.manual_seed_all(3)
one = torch.rand(2, device="cuda")
torch.manual_seed(3)
assert torch.equal(one, torch.rand(2))
states = cuda.get_rng_state_all()
with torch.random.fork_rng(devices=range(cuda.device_count()), device_type="cuda"):
    drawn = torch.rand(2)
cuda.set_rng_state_all(states)
assert len(states) == 2 and torch.equal(drawn, torch.rand(2)) and torch.equal(states[0], states[1])

# what no name can be
for name in ("CUDAGraph", "graph", "MemPool", "FloatTensor", "ExternalStream"):
    refused(ValueError, f"Lamina has no torch.cuda.{name}", getattr(cuda, name))
refused(ValueError, "a device of cuda, not cpu", lambda: cuda.set_device("cpu"))
"""


def test_rooms_of_devices_answer(tmp_path):
    run(tmp_path, ROOMS, "2")


PRECISION = """
warnings.simplefilter("error")
warnings.filterwarnings("ignore", ".*names? of this CPU.*")
a = torch.ones(2, 2)
with torch.autocast("cuda"):
    assert (a @ a).dtype is torch.float16 is torch.get_autocast_dtype("cuda")
    assert torch.is_autocast_enabled("cuda")
    with torch.amp.autocast("cpu", enabled=False):  # where x.device.type is asked for it
        assert (a @ a).dtype is torch.float32 and not torch.is_autocast_enabled("cuda")
    with torch.cuda.amp.autocast(dtype=torch.bfloat16):
        assert (a @ a).dtype is torch.bfloat16 is torch.get_autocast_dtype("cuda")
with torch.autocast("cpu"):
    assert (a @ a).dtype is torch.bfloat16 and torch.get_autocast_dtype("cuda") is torch.float16
torch.set_autocast_enabled("cuda", True)
assert torch.is_autocast_enabled() and (a @ a).dtype is torch.float16
torch.set_autocast_enabled("cuda", False)

def train(device, net):
    scaler = torch.amp.GradScaler(device, init_scale=1024.0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        with torch.amp.autocast(device_type=device, dtype=torch.float16):
            loss = net(torch.ones(4, 2, device=device)).square().mean()
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert scaler.is_enabled() and scaler.get_scale() == 1024.0
    return losses

net = nn.Linear(2, 3)
twin = copy.deepcopy(net)
losses = train("cuda", nn.DataParallel(net.cuda(), device_ids=[0, 1]))
assert losses == train("cpu", twin) and losses[-1] < 0.9 * losses[0], losses

from lamina.nn.parallel.scatter_gather import gather, scatter, scatter_kwargs

batch = {"x": torch.arange(5.0), "y": (torch.ones(5, 2), [torch.zeros(5)]), "n": 3}
parts = scatter(batch, [0, 1])
assert [p["x"].tolist() for p in parts] == [[0.0, 1.0, 2.0], [3.0, 4.0]] and parts[1]["n"] == 3
assert [p["y"][0].shape for p in parts] == [(3, 2), (2, 2)] and type(parts[0]["y"][1]) is list
assert scatter_kwargs((), {"x": batch["x"]}, [0, 1])[0] == ((), ())
joined = gather([{"x": p["x"], "y": p["y"]} for p in parts], "cuda:0")
assert joined["x"].equal(batch["x"]) and joined["y"][0].shape == (5, 2)
assert gather([torch.tensor(1.0), torch.tensor(2.0)], 0).tolist() == [1.0, 2.0]

class Doubled(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx, x):
        assert x.dtype is torch.float32 and not torch.is_autocast_enabled("cuda")
        return 2 * x
    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, g):
        return 2 * g
with torch.autocast("cuda"):
    assert Doubled.apply(a.half().requires_grad_()).dtype is torch.float32
"""


def test_mixed_precision_is_that_of_the_cpu(tmp_path):
    run(tmp_path, PRECISION, "2")


# A file that says "cuda:0" for its storages, as one that was saved on a GPU does.
CHECKPOINTS = """
import zipfile
def saved_on(place):
    torch.save({"x": torch.arange(3.0)}, plain := io.BytesIO())
    moved = io.BytesIO()
    with zipfile.ZipFile(plain) as before, zipfile.ZipFile(moved, "w") as after:
        for name in before.namelist():
            data = before.read(name)
            if name.endswith("data.pkl"):
                assert b"X\\3\\0\\0\\0cpu" in data
                data = data.replace(b"X\\3\\0\\0\\0cpu", b"X\\6\\0\\0\\0" + place)
            after.writestr(name, data)
    moved.seek(0)
    return moved
"""


def test_checkpoints_of_gpus_are_loaded(tmp_path):
    program = """
    warnings.simplefilter("ignore")
    places = (None, "cuda:0", "cuda", "cpu", torch.device("cuda:1"), {"cuda:0": "cuda:1"})
    for place in (*places, lambda storage, at: storage.cuda(1)):
        found = torch.load(saved_on(b"cuda:0"), map_location=place)["x"]
        assert found.tolist() == [0, 1, 2] and found.is_cpu
    refused(torch.DeviceError, "2 are pretended", lambda: torch.load(saved_on(b"cuda:2")))
    moved = lambda: torch.load(saved_on(b"cuda:0"), map_location="cuda:2")
    refused(torch.DeviceError, "2 are pretended", moved)
    """
    run(tmp_path, CHECKPOINTS + textwrap.dedent(program), "2")


@pytest.mark.parametrize("gpus", [None, "", "0"])
def test_without_the_variable_there_are_none(tmp_path, gpus):
    program = """
    warnings.simplefilter("error")
    accelerator, x = torch.accelerator, torch.ones(1)
    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0 == accelerator.device_count()
    assert not accelerator.is_available() and accelerator.current_accelerator() is None
    accelerator.synchronize()
    for f in (
        lambda: x.to("cuda"), lambda: x.cuda(), lambda: x.cuda(1), lambda: x.pin_memory(),
        lambda: torch.device(1), lambda: torch.zeros(1, device=1), lambda: torch.zeros(1, device="cuda"),
        lambda: accelerator.set_device_index(0), accelerator.current_device_index,
        lambda: torch.cuda.current_stream(), lambda: torch.load(saved_on(b"cuda:0")),
        lambda: nn.DataParallel(nn.Linear(1, 1), device_ids=[0]), lambda: torch.device("cuda").__enter__(),
    ):
        refused(torch.DeviceError, "", f)
    refused(TypeError, "not int", lambda: x.to(1))
    refused(TypeError, "not int", lambda: nn.Linear(1, 1).to(1))
    refused(TypeError, "pin_memory=", lambda: torch.empty(1, pin_memory=True))
    refused(ValueError, "LAMINA_PRETEND_GPUS=1", torch.cuda.Stream)
    assert torch.get_device_module() is torch.cpu and not torch.backends.cuda.is_built()
    refused(Warning, "does nothing", lambda: torch.autocast("cuda"))
    refused(Warning, "does nothing", lambda: torch.amp.GradScaler("cuda"))
    """
    run(tmp_path, CHECKPOINTS + textwrap.dedent(program), gpus)


def test_a_value_that_is_no_number_is_refused_where_it_is_first_asked_for(tmp_path):
    program = """
    assert torch.ones(2).sum() == 2
    said = "LAMINA_PRETEND_GPUS='two': a whole number of GPUs"
    asked = (torch.cuda.is_available, torch.accelerator.current_accelerator)
    for f in (*asked, lambda: torch.zeros(1, device="cuda")):
        refused(ValueError, said, f)
    """
    run(tmp_path, program, "two")
    run(tmp_path, program.replace("two", "-1"), "-1")
