"""Several hosts: network namespaces joined by a bridge, with addresses of their own; MPI's TCP between them.

pytest -m slow tests/distributed/test_hosts.py          (as root, with `ip` and `tc`)
"""

import os
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


@pytest.fixture(scope="module")
def hosts():
    """Two hosts, 10.91.7.1 and 10.91.7.2."""
    try:
        ip("link", "add", NAME, "type", "bridge")
        ip("link", "set", NAME, "up")
        for n in (1, 2):
            ip("netns", "add", f"{NAME}{n}")
            ip("link", "add", f"{NAME}v{n}", "type", "veth", "peer", "name", "eth0", "netns", f"{NAME}{n}")
            ip("link", "set", f"{NAME}v{n}", "master", NAME, "up")
            ip("-n", f"{NAME}{n}", "addr", "add", f"10.91.7.{n}/24", "dev", "eth0")
            ip("-n", f"{NAME}{n}", "link", "set", "eth0", "up")
            ip("-n", f"{NAME}{n}", "link", "set", "lo", "up")
        yield ["10.91.7.1", "10.91.7.2"]
    finally:
        for n in (1, 2):
            ip("netns", "del", f"{NAME}{n}", check=False)
        ip("link", "del", NAME, check=False)


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
from lamina.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group()
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
    for x, y in zip(X, Y):
        part = slice(rank, None, size) if distributed else slice(None)
        optimizer.zero_grad()
        loss = ((model(lamina.tensor(x[part])) - lamina.tensor(y[part])) ** 2).mean()
        loss.backward()
        optimizer.step()
        loss = loss.detach()
        if distributed:
            dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        found.append(loss.item())
    return np.array(found)
far = np.abs(losses(True) / losses(False) - 1).max()
assert far < 1e-10, far
big = lamina.ones(1 << 20)
dist.all_reduce(big)
assert big[-1].item() == size
print("equal")
"""


@pytest.mark.parametrize(
    "shaped", [None, "tbf rate 200mbit burst 32kbit latency 400ms", "netem delay 5ms", "netem loss 1%"]
)
def test_training_over_two_hosts_is_that_of_one_process(hosts, shaped, tmp_path):
    tc = ["ip", "netns", "exec", f"{NAME}2", "tc", "qdisc"]
    if shaped is not None:
        done = subprocess.run([*tc, "add", "dev", "eth0", "root", *shaped.split()], stderr=subprocess.PIPE)
        if b"qdisc kind is unknown" in done.stderr:
            pytest.skip(f"this kernel has no {shaped.split()[0]}")
        assert done.returncode == 0, done.stderr
    try:
        assert across(hosts, TRAINING, tmp_path, timeout=200).count("equal") == 4
    finally:
        if shaped is not None:
            subprocess.run([*tc, "del", "dev", "eth0", "root"], check=True)


def test_a_link_that_is_cut_ends_in_an_error_on_each_rank(hosts, tmp_path):
    """Those that wait for the other host give up after the group's timeout."""
    printed = across(
        hosts,
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
    for pid in processes(str(tmp_path)):  # MPI's own on the other host may be left, as nobody tells it
        os.kill(pid, signal.SIGKILL)
    ip("-n", f"{NAME}2", "link", "set", "eth0", "up")
    assert not left, "the ranks of the host that nobody reached did not end"
    assert "not reached" not in printed
    assert "nobody came for" in printed and "2 ranks are on other machines" in printed, printed
