"""Several hosts: network namespaces with their own addresses, joined by a bridge or a slow wire; MPI's TCP.

pytest -m slow tests/distributed/test_hosts.py          (as root, with `ip` and `tc`)
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces want root"),
    pytest.mark.skipif(not shutil.which("ip") or not shutil.which("tc"), reason="iproute2 is not installed"),
]
NAME = (
    f"lam{os.getpid() % 10000}x"  # of a bridge and of namespaces; an interface's name has 15 letters at most
)


def processes(text):
    """The processes whose command lines have a text in them."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path("/proc", pid, "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        if text.encode() in line:
            found.append(int(pid))
    return found


def ip(*words, check=True):
    subprocess.run(["ip", *words], check=check, capture_output=not check)


@pytest.fixture
def hosts():
    """Two hosts, 10.91.7.1 and 10.91.7.2, that nothing joins yet."""
    try:
        for n in (1, 2):
            ip("netns", "add", f"{NAME}{n}")
            ip("-n", f"{NAME}{n}", "link", "set", "lo", "up")
        yield ["10.91.7.1", "10.91.7.2"]
    finally:
        for n in (1, 2):
            inside = subprocess.run(["ip", "netns", "pids", f"{NAME}{n}"], capture_output=True, text=True)
            for pid in inside.stdout.split():  # where a test failed, or MPI's own, which nobody told to end
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            ip("netns", "del", f"{NAME}{n}", check=False)


def plug(n, device):
    """Make a device eth0 of host n."""
    ip("link", "set", device, "netns", f"{NAME}{n}", "name", "eth0")
    ip("-n", f"{NAME}{n}", "addr", "add", f"10.91.7.{n}/24", "dev", "eth0")
    ip("-n", f"{NAME}{n}", "link", "set", "eth0", "up")


@pytest.fixture
def bridged(hosts):
    """The hosts, joined by a bridge."""
    try:
        ip("link", "add", NAME, "type", "bridge")
        ip("link", "set", NAME, "up")
        for n in (1, 2):
            ip("link", "add", f"{NAME}v{n}", "type", "veth", "peer", "name", f"{NAME}e{n}")
            ip("link", "set", f"{NAME}v{n}", "master", NAME, "up")
            plug(n, f"{NAME}e{n}")
        yield hosts
    finally:
        for device in (NAME, f"{NAME}v1", f"{NAME}v2"):
            ip("link", "del", device, check=False)


@contextlib.contextmanager
def wire(delay=0.0, loss=0.0):
    """Join the hosts by slow_wire.py: its process, whose signals and counts are told there."""
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        pytest.skip(f"TAP devices want /dev/net/tun: {error}")
    program = Path(__file__).with_name("slow_wire.py")
    devices = [f"{NAME}t1", f"{NAME}t2"]
    with subprocess.Popen(
        [sys.executable, str(program), *devices, str(delay), str(loss)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout.readline() == "ready\n"
            for n, device in enumerate(devices, 1):
                plug(n, device)
            yield process
        finally:
            process.kill()


def counts_of(process):
    """End a wire; how many frames it carried, lost and cut off."""
    return json.loads(process.communicate(timeout=20)[0])


def across(hosts, source, tmp_path, n=4, **how):
    """What a program prints on n ranks of both hosts."""
    enter = tmp_path / "enter.sh"  # in place of ssh: enter the namespace that an address is of
    enter.write_text(f'#!/bin/sh\nhost=$1; shift\nexec ip netns exec {NAME}${{host##*.}} /bin/sh -c "$*"\n')
    enter.chmod(0o755)
    script = tmp_path / "program.py"
    script.write_text(ranks.BEGIN + ranks.textwrap.dedent(source))
    words = ["ip", "netns", "exec", f"{NAME}1", str(ranks.MPIEXEC), "-launcher", "rsh"]
    words += ["-launcher-exec", str(enter), "-iface", "eth0", "-hosts", ",".join(hosts)]
    words += ["-n", str(n), "-ppn", str(n // 2), sys.executable, str(script)]
    # or UCX goes through shared memory, which the namespaces have in common
    return ranks.command(words, UCX_TLS="tcp,self", **how)


TRAINING = """
import datetime, os, signal, time
from lamina.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group(timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
assert len(dist.groups.need_world().near) == size // 2
generator = np.random.default_rng(0)
X, Y = generator.standard_normal((30, 8, 6)), generator.standard_normal((30, 8, 2))
def losses(distributed):
    lamina.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 300), nn.Tanh(), nn.Linear(300, 2)).double()
    model = DDP(net) if distributed else net
    optimizer = optim.Adam(net.parameters(), lr=1e-2)
    found = []
    for step, (x, y) in enumerate(zip(X, Y)):
        part = slice(rank, None, size) if distributed else slice(None)
        cut = distributed and rank == size - 1 and step == 10 and "WIRE" in os.environ
        if cut:
            start = time.monotonic()
            os.kill(int(os.environ["WIRE"]), signal.SIGUSR1)
        optimizer.zero_grad()
        loss = ((model(lamina.tensor(x[part])) - lamina.tensor(y[part])) ** 2).mean()
        loss.backward()
        optimizer.step()
        loss = loss.detach()
        if distributed:
            dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        found.append(loss.item())
        if cut:
            print("seconds:", time.monotonic() - start)
    return np.array(found)
far = np.abs(losses(True) / losses(False) - 1).max()
assert far < 1e-10, far
big = lamina.ones(1 << 20)
dist.all_reduce(big)
assert big[-1].item() == size
print("equal")
"""


# Rank 0 asks the last one, which is on the other host, over TCP of its own.
PINGS = """
import socket
if rank == size - 1:
    listener = socket.create_server(("10.91.7.2", 0))
    port = lamina.tensor(listener.getsockname()[1])
else:
    port = lamina.tensor(0)
dist.broadcast(port, size - 1)
if rank == 0:
    trips = []
    with socket.create_connection(("10.91.7.2", port.item())) as asker:
        for _ in range(20):
            start = time.monotonic()
            asker.sendall(b"?")
            assert asker.recv(1) == b"!"
            trips.append(time.monotonic() - start)
    print("seconds:", min(trips))
elif rank == size - 1:
    with listener, listener.accept()[0] as answerer:
        while answerer.recv(1):
            answerer.sendall(b"!")
"""


def seconds(printed):
    """What the one rank that measured something printed."""
    (found,) = re.findall(r"seconds: (\S+)", printed)
    return float(found)


@pytest.mark.parametrize("shaped", [None, "tbf rate 200mbit burst 32kbit latency 400ms"])
def test_training_over_two_hosts_is_that_of_one_process(bridged, shaped, tmp_path):
    if shaped is not None:
        tc = ["ip", "netns", "exec", f"{NAME}2", "tc", "qdisc", "add", "dev", "eth0", "root", *shaped.split()]
        done = subprocess.run(tc, stderr=subprocess.PIPE)
        if b"qdisc kind is unknown" in done.stderr:
            pytest.skip(f"this kernel has no {shaped.split()[0]}")
        assert done.returncode == 0, done.stderr
    assert across(bridged, TRAINING, tmp_path, timeout=200).count("equal") == 4


@pytest.mark.parametrize("delay, loss", [(0.005, 0), (0, 0.01)], ids=["delay 5ms", "loss 1%"])
def test_training_over_a_wire_that_delays_or_loses_is_that_of_one_process(hosts, delay, loss, tmp_path):
    with wire(delay, loss) as process:
        printed = across(hosts, TRAINING + PINGS, tmp_path, timeout=100)
        counts = counts_of(process)
    assert printed.count("equal") == 4
    assert seconds(printed) >= 2 * delay  # exactly: the wire's clock starts once it has a frame
    assert counts["carried"] > 1000 and counts["cut"] == 0, counts
    assert (counts["lost"] > 0) == (loss > 0), counts


def test_training_goes_on_after_a_wire_was_cut_for_two_seconds(hosts, tmp_path):
    """TCP repeats what was lost, within the group's timeout; the step in which it happened takes as long."""
    with wire() as process:
        printed = across(hosts, TRAINING, tmp_path, timeout=100, WIRE=str(process.pid))
        counts = counts_of(process)
    assert printed.count("equal") == 4
    assert seconds(printed) >= 2
    assert counts["cut"] > 0 and counts["lost"] == 0 and counts["carried"] > 1000, counts


def test_a_link_that_is_cut_ends_in_an_error_on_each_rank(bridged, tmp_path):
    """Those that wait for the other host give up after the group's timeout."""
    printed = across(
        bridged,
        """
        import datetime, subprocess
        dist.init_process_group(timeout=datetime.timedelta(seconds=4))
        dist.all_reduce(lamina.ones(1000))
        if dist.get_rank() == 3:
            subprocess.run(["ip", "link", "set", "eth0", "down"], check=True)
        for _ in range(100):
            dist.all_reduce(lamina.ones(1000))
        print("not reached")
        """,
        tmp_path,
        timeout=60,
        status=None,
    )
    until = time.monotonic() + 10
    while (left := processes(str(tmp_path / "program.py"))) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left, "the ranks of the host that nobody reached did not end"
    assert "not reached" not in printed
    assert "nobody came for" in printed and "2 ranks are on other machines" in printed, printed
