"""Ranks that Ray starts: data parallel training in two actors, one that is killed, and going on after it.

pip install ray; pytest tests/distributed/test_ray.py
"""

import sys
import textwrap

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
pytestmark = pytest.mark.slow  # Ray takes ten seconds to start

TRAIN = """
import os, signal, sys
import ray

def train(folder, deadly):
    import numpy as np
    import lamina
    import lamina.distributed as dist
    import lamina.distributed.checkpoint as dcp
    from lamina import nn, optim
    from lamina.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    times = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    lamina.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = optim.Adam(net.parameters(), lr=1e-2)
    checkpoints = dcp.Checkpoints(folder, keep=2, every=2)
    own, states = get_state_dict(net, optimizer)
    state = {"model": own, "optimizer": states, "step": 0}
    if checkpoints.restore(state) is not None:
        set_state_dict(net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    losses = []
    for step in range(state["step"] + 1, 11):
        if deadly == (times, rank, step):
            os.kill(os.getpid(), signal.SIGKILL)
        generator = np.random.default_rng(step)
        x, y = (lamina.tensor(generator.standard_normal((8, n))) for n in (5, 1))
        optimizer.zero_grad()
        loss = ((model(x[rank::size]) - y[rank::size]) ** 2).mean()
        loss.backward()
        optimizer.step()
        if checkpoints.is_due(step):
            own, states = get_state_dict(net, optimizer)
            checkpoints.async_save(step, {"model": own, "optimizer": states, "step": step}).result()
        loss = loss.detach()
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        losses.append(loss.item())
    return losses

ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR")
"""


def run(source, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(TRAIN + textwrap.dedent(source))
    return ranks.command([sys.executable, str(script), str(tmp_path)], timeout=115)


def test_actors_that_are_told_their_places_train(tmp_path):
    """As any Ray program would, without a line of ours; once with an actor that is killed."""
    printed = run(
        """
        import socket

        @ray.remote
        class Worker:
            def address(self):
                with socket.socket() as probe:
                    probe.bind(("", 0))
                    return ray.util.get_node_ip_address(), str(probe.getsockname()[1])

            def train(self, rank, address, port, *args):
                os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR=address, MASTER_PORT=port)
                return train(*args)

        def job(folder, deadly):
            workers = [Worker.remote() for _ in range(2)]
            place = ray.get(workers[0].address.remote())
            said = []
            for call in [w.train.remote(r, *place, folder, deadly) for r, w in enumerate(workers)]:
                try:
                    said.append(ray.get(call))
                except Exception as error:
                    said.append(f"{type(error).__name__} {getattr(error, 'cause', '')}")
            for worker in workers:
                ray.kill(worker)
            return said

        whole = job(sys.argv[1] + "/whole", None)
        assert whole[0] == whole[1] and len(whole[0]) == 10
        broken = job(sys.argv[1] + "/broken", (0, 1, 6))
        assert "DistributedError" in broken[0] and "rank 1 is gone (process" in broken[0], broken
        assert "ActorDiedError" in broken[1], broken
        again = job(sys.argv[1] + "/broken", None)
        assert again[0] == whole[0][4:], (again, whole)  # the steps after the fourth, which was saved
        print("equal", flush=True)
        """,
        tmp_path,
    )
    assert "equal" in printed


def test_ranks_are_started_anew_and_go_on(tmp_path):
    printed = run(
        """
        from lamina.distributed.launching import ray_ranks
        folder = sys.argv[1]
        whole = ray_ranks.run(train, (folder + "/whole", None))
        broken = ray_ranks.run(train, (folder + "/broken", (0, 1, 6)), max_restarts=1)
        assert broken[0] == broken[1] == whole[0][4:], (whole, broken)
        try:
            ray_ranks.run(train, (folder + "/ended", (0, 0, 3)), ranks=2, num_cpus=0.5)
        except RuntimeError as error:
            text = str(error)
            assert "DistributedError" in text.split("\\n")[1] and "rank 0 is gone" in text, text
            assert text.startswith("rank 0 of 2 (host ") and "ActorDiedError" in text.split("\\n")[0], text
        else:
            raise AssertionError("nothing was raised")
        assert ray_ranks.run(lambda: os.environ["RANK"], ranks=1) == ["0"]
        print("equal", flush=True)
        """,
        tmp_path,
    )
    assert "equal" in printed


def test_ray_train_starts_its_workers_as_ranks_and_anew(tmp_path):
    pytest.importorskip(
        "ray.train", reason="Ray Train is not installed: pip install 'ray[train]'", exc_type=ImportError
    )
    printed = run(
        """
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
        from lamina.distributed.launching.ray_train_backend import LaminaConfig

        def work(config):
            died = config["folder"] + "/died"
            first = not os.path.exists(died)
            if first and os.environ["RANK"] == "1":
                open(died, "w").close()
            losses = train(config["folder"] + "/saved", (0, 1, 6) if first else None)
            with open(f"{config['folder']}/{os.environ['RANK']}", "w") as file:
                file.write(repr(losses))

        folder = sys.argv[1]
        settings = RunConfig(storage_path=folder, failure_config=FailureConfig(max_failures=1))
        DataParallelTrainer(
            work, train_loop_config={"folder": folder}, backend_config=LaminaConfig(),
            scaling_config=ScalingConfig(num_workers=2), run_config=settings,
        ).fit()
        told = [eval(open(f"{folder}/{rank}").read()) for rank in range(2)]
        assert told[0] == told[1] and len(told[0]) == 6, told
        print("went on", flush=True)
        """,
        tmp_path,
    )
    assert "went on" in printed
