"""Collectives that are joined where all ranks agree: on ranks that are threads, by ballots, on real ranks."""

import re
import threading

import numpy as np
import pytest
import ranks
from edited import edited
from test_traced_collectives import PAIR, TwoAlike, program

import lamina
from lamina import jit
from lamina.ir import meeting, parse, verify
from lamina.ir.dtypes import float64
from lamina.ir.errors import GraphError
from lamina.ir.graph import Builder
from lamina.ir.interpret import interpret
from lamina.ir.op import REGISTRY
from lamina.ir.ops import collectives as ops
from lamina.ir.types import type_of
from lamina.jit import agreed
from lamina.jit.interpreted import Interpreted
from lamina.passes.graphs.bucket_collectives import bucket_collectives
from lamina.passes.graphs.fewer_collectives import fewer_collectives

PATIENCE = 20.0  # seconds after which ranks that wait for each other are said to do so for ever


class Hall:
    """Ranks that are threads of this process, and meet one after another in their own orders."""

    def __init__(self, size):
        self.everyone = tuple(range(size))
        self.own, self.given = threading.local(), [[] for _ in range(size)]
        self.changed, self.errors = threading.Condition(), []

    def met(self, number):
        return all(len(given) > number for given in self.given)

    @property
    def rank(self):
        return self.own.rank

    def start(self, kind, attrs, inputs, outputs, ahead=False):
        (x,), (out,) = inputs, outputs
        with self.changed:
            self.given[self.rank].append((f"{kind} {x.dtype} {x.shape} {attrs}", x.copy()))
            self.changed.notify_all()
            number = len(self.given[self.rank]) - 1
        hall, rank = self, self.rank

        class Waiting:
            def wait(self):
                with hall.changed:
                    hall.changed.wait_for(lambda: hall.errors or hall.met(number), PATIENCE)
                    assert hall.met(number), "ranks wait for each other"
                    met = [g[number] for g in hall.given]
                assert len({said for said, _ in met}) == 1, f"ranks differ: {[said for said, _ in met]}"
                np.copyto(out, combined(kind, attrs, [x for _, x in met], rank))

        return Waiting()

    def run(self, function):
        """What the ranks return; raises what one raised."""
        results, errors = [None] * len(self.everyone), self.errors

        def work(rank):
            self.own.rank = rank
            try:
                results[rank] = function(rank)
            except BaseException as error:
                with self.changed:
                    errors.append(error)
                    self.changed.notify_all()

        threads = [threading.Thread(target=work, args=(rank,)) for rank in self.everyone]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return results


def combined(kind, attrs, given, rank):
    """What a rank gets of what all gave."""
    count, dim = len(given), attrs.get("dim")
    if kind in ("all_reduce", "reduce", "reduce_scatter"):
        found = {"sum": np.sum, "avg": np.mean, "max": np.max, "min": np.min}[attrs["reduce"]](given, axis=0)
        if kind == "reduce":
            return found if rank == attrs["dst"] else np.zeros_like(found)
        return found if kind == "all_reduce" else np.split(found, count, dim)[rank]
    if kind == "all_gather":
        return np.concatenate(given, dim)
    if kind == "broadcast":
        return given[attrs["src"]]
    assert kind == "all_to_all"
    return np.concatenate([np.split(x, count, attrs["split_dim"])[rank] for x in given], attrs["cat_dim"])


def hall_of(size, monkeypatch):
    hall = Hall(size)
    monkeypatch.setattr(meeting, "CARRIER", hall)
    return hall


def graph_of(seed, rank, size):
    """A random graph of collectives; ranks differ in the part that is their own."""
    choose, group, op = np.random.default_rng(seed), tuple(range(size)), REGISTRY
    n = 2 * size
    with Builder("random") as b:
        values = [b.param(type_of(float64, (n, n)), f"p{i}") for i in range(3)]
        for _ in range(choose.integers(4, 20)):
            x, y = (values[i] for i in choose.integers(max(0, len(values) - 4), len(values), 2))
            kind, dim = choose.integers(0, 13), int(choose.integers(0, 2))
            reduce = ("sum", "sum", "avg", "max")[choose.integers(0, 4)]
            part = tuple(
                [("slice", 2 * rank, 2 * rank + 2, 1) if d == dim else ("slice", 0, n, 1) for d in (0, 1)]
            )
            if kind < 3:
                made = op["all_reduce"](x, reduce, group)
            elif kind == 3:
                made = op["add"](op["all_reduce"](x, reduce, group), op["all_reduce"](y, reduce, group))
            elif kind == 4:
                made = op["basic_index"](op["div"](op["all_reduce"](x, reduce, group), 3.0), part)
                made = op["all_gather"](op["tanh"](made), dim, group)
            elif kind == 5:
                along = dim if choose.integers(0, 3) else 1 - dim
                made = op["all_gather"](op["reduce_scatter"](x, dim, reduce, group), along, group)
                made = op["reshape"](made, (n, n))
            elif kind == 12:
                parts = [op["reduce_scatter"](v, d, "sum", group) for v, d in ((x, dim), (y, 1 - dim))]
                made = op["add"](op["sum"](parts[0]), op["mul"](y, op["sum"](parts[1])))
            else:
                made = op["add"](op["tanh"](x), y)
            how = choose.integers(0, 3)
            values.append(op["tanh"](made) if how == 0 else op["mul"](made, 0.25) if how == 1 else made)
        return b.finish([*values[-3:], values[len(values) // 2]])


def held(seed, size, monkeypatch, fewer=fewer_collectives, bucket=bucket_collectives):
    """How many collectives a random graph has before and after, once all ranks ran both to equal results."""
    arrays = np.random.default_rng(seed).standard_normal((size, 3, 2 * size, 2 * size))
    counts = set()

    def both(rank):
        graph = graph_of(seed, rank, size)
        made = bucket(fewer(graph, rank))
        verify(made)
        counts.add((len(agreed.meetings(graph)), len(agreed.meetings(made)), agreed.digest_of(made, {})))
        return interpret(graph, *arrays[rank]), interpret(made, *arrays[rank])

    for plain, joined in hall_of(size, monkeypatch).run(both):
        for a, b in zip(plain, joined, strict=True):
            # float64: a few sums of 3 ranks, and of 36 products, in another order
            np.testing.assert_allclose(b, a, rtol=1e-11, atol=1e-11)
    ((before, after, _),) = counts  # the same on all ranks
    return before, after


@pytest.mark.parametrize("size", (2, 3))
@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(seed, size, monkeypatch):
    before, after = held(seed, size, monkeypatch)
    assert after <= before


def test_random_graphs_are_joined(monkeypatch):
    counts = np.sum([held(seed, 2, monkeypatch) for seed in range(15)], axis=0)
    assert counts[1] < 0.7 * counts[0], counts


FEWER, BUCKET = "fewer_collectives", "bucket_collectives"
BUGS = {  # a pass, what stands in it and what is planted; where that is rare, the first graph that shows it
    "a collective joins what it needs": (BUCKET, "if not behind.isdisjoint(members)", "if False"),
    "what hangs on a collective is not known": (BUCKET, "leads[v] = behind", "leads[v] = set()"),
    "readers do not wait": (BUCKET, "if missing.isdisjoint(each.inputs):", "if True:"),
    "any reduction is joined with any": (
        BUCKET,
        "x.device, alike",
        'x.device, attrs["group"], attrs.get("src")',
    ),
    "parts lie as they come": (BUCKET, "moved = each if dim == 0 else", "moved = each if True else"),
    "parts go as they lie": (BUCKET, "moved = cut if dim == 0 else", "moved = cut if True else"),
    "the first rank's part": (FEWER, "group.index(self.rank)", "0"),
    "a sum of largest ones": (FEWER, 'one.attrs["reduce"] not in LINEAR', "False", 89),
    "each sums what all have": (FEWER, 'IDEMPOTENT = ("avg",', 'IDEMPOTENT = ("sum", "avg",'),
    "any dim": (FEWER, '(parts.attrs["dim"], parts.attrs["group"]) !=', "() and () !="),
    "a part for the whole": (
        FEWER,
        "index,) = indices if len(indices) == 1",
        "index, *_) = indices if indices",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_seen(bug, monkeypatch):
    name, right, wrong, *first = BUGS[bug]
    passes = {"fewer": fewer_collectives, "bucket": bucket_collectives}
    passes[name.partition("_")[0]] = getattr(edited(f"lamina.passes.graphs.{name}", right, wrong), name)
    begin = first[0] if first else 0  # where a bug is rare, the graph that shows it
    with pytest.raises((AssertionError, GraphError)):
        for seed in range(begin, begin + 20):  # one that takes any of a set is right by chance
            held(seed, 2, monkeypatch, **passes)


# ---- the ballot
BALLOT = """
graph f(%a: f64[4], %b: f64[4]) -> (f64[4], f64[4]) {
  %0 = zeros() {size=(2,), dtype=i64, device=@cpu} : i64[2]
  %1 = all_reduce(%0) {reduce="min", group=(0,1)} : i64[2]
  %2 = all_reduce(%a) {reduce="sum", group=(0,1)} : f64[4]
  %3 = all_reduce(%b) {reduce="sum", group=(0,1)} : f64[4]
  return %2, %3
}"""
OPEN = BALLOT.replace("f64[4]", "f64[s1]")


def called(monkeypatch, *graphs, eager=()):
    """The codes of ranks that have called them once; those of `eager` are interpreted as they are."""
    arrays = np.random.default_rng(0).standard_normal((len(graphs), 2, 4))
    codes = [None] * len(graphs)

    def call(rank):
        graph = parse(graphs[rank])
        sizes = {"s1": 4} if "s1" in graphs[rank] else {}
        if rank in eager:
            return interpret(graph, *arrays[rank])
        codes[rank] = agreed.compiled(graph, sizes, as_it_is)
        return codes[rank].run(list(arrays[rank]))

    hall = hall_of(len(graphs), monkeypatch)
    for found in hall.run(call):
        for x, wanted in zip(found, arrays.sum(0), strict=True):
            np.testing.assert_allclose(x, wanted, rtol=1e-15)  # one sum of two
    return codes, [len(given) for given in hall.given]


def as_it_is(graph):
    return Interpreted(graph, (None,) * len(graph.results))


def test_ranks_that_run_the_same_join(monkeypatch):
    codes, met = called(monkeypatch, BALLOT, BALLOT)
    assert [code.text() for code in codes] == [
        "2 collectives are 1 where all ranks agree, as in 1 of 1 calls"
    ] * 2
    assert met == [2, 2]  # the ballot, and both in one


def test_a_rank_that_runs_eagerly_joins_none(monkeypatch):
    codes, met = called(monkeypatch, BALLOT, BALLOT, eager=(1,))
    assert codes[0].together == 0 and codes[0].calls == 1 and met == [3, 3]


def test_a_rank_whose_sizes_are_symbols_joins_none(monkeypatch):
    """It knows no size to decide by, and has plain code, whose ballot says zeros."""
    codes, met = called(monkeypatch, BALLOT, OPEN)
    assert codes[0].together == 0 and type(codes[1]) is Interpreted and met == [3, 3]


def test_ranks_that_would_join_in_other_orders_do_not(monkeypatch):
    """The planted bug is a pass that orders by rank; without the digest ranks meet in two orders."""
    text = BALLOT.replace(
        "return %2, %3", "%4 = all_gather(%a) {dim=0, group=(0,1)} : f64[8]\n  return %2, %3"
    )

    def by_rank(graph):
        made = bucket_collectives(graph)
        last = [node for node in made.nodes if node.op.name == "all_gather"]
        others = [node for node in made.nodes if node.op.name != "all_gather"]
        return made.replace(nodes=[*last, *others] if meeting.own_rank() else [*others, *last])

    monkeypatch.setattr(agreed, "bucket_collectives", by_rank)
    codes, _ = called(monkeypatch, text, text)
    assert [code.together for code in codes] == [0, 0]
    monkeypatch.setattr(agreed, "digest_of", lambda graph, sizes: 1 + ("cat" in str(graph)))
    with pytest.raises(GraphError, match="ranks differ"):
        called(monkeypatch, text, text)


NO_BALLOT = {
    "its result is read": BALLOT.replace("-> (f64[4], f64[4])", "-> (f64[4], f64[4], i64[2])").replace(
        "return %2, %3", "return %2, %3, %1"
    ),
    "others than zeros": BALLOT.replace("zeros()", "ones()"),
    "another reduction": BALLOT.replace('"min"', '"max"'),
    "it comes later": BALLOT.replace(
        "%1 = all", "%9 = broadcast(%a) {src=0, group=(0,1)} : f64[4]\n  %1 = all"
    ),
    "of another group": BALLOT.replace("group=(0,1)", "group=(1,0)", 1),
    "of a rank alone": BALLOT.replace("group=(0,1)", "group=(0,)"),
    "nothing is saved": BALLOT.replace("f64[4]", "f64[s1]"),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_BALLOT)
def test_other_graphs_have_one_code(name):
    graph = parse(NO_BALLOT[name])
    made = []
    assert agreed.compiled(graph, {"s1": 4}, lambda g: made.append(g)) is None
    assert made == [graph]


# ---- compiled
class Joining(TwoAlike):
    rank = 0


NOTHING_TO_JOIN = (3, 9, 11, 23, 27, 30, 34, 42, 56, 57)  # seeds of functions


@pytest.mark.parametrize("seed", range(60))
def test_random_functions_that_are_joined(seed, monkeypatch):
    """On test_traced_collectives' stand-in, which writes garbage into results until they are waited for."""
    monkeypatch.setattr(meeting, "CARRIER", carrier := Joining())
    f, arrays = program(seed, parts=False)
    expected = f(*arrays)
    begun = len([what for what, _ in carrier.log if what == "begin"])

    @jit.trace
    def traced(a, b, c):
        ops.all_reduce(lamina.zeros(2, dtype=lamina.int64), "min", PAIR)
        return f(a, b, c)

    for _ in range(3):
        carrier.log.clear()
        results = traced(*arrays)
        for got, wanted in zip(results, expected, strict=True):
            # float64: sums of 8 products, rounded otherwise
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-11, atol=1e-12)
    told = re.search(
        r"(\d+) collectives are (\d+) where .* in 2 of 2 calls", str(traced.explain(detail=True))
    )
    assert (told is None) == (seed in NOTHING_TO_JOIN)
    assert told is None or int(told[1]) == begun
    assert carrier.log.count(("wait", "all_reduce")) > 0
    count = len([what for what, _ in carrier.log if what == "begin"])
    assert count == 1 + (begun if told is None else int(told[2]))  # with the ballot


def test_results_that_are_one_are_arrays_of_their_own(monkeypatch):
    monkeypatch.setattr(meeting, "CARRIER", Joining())

    @jit.trace
    def f(a):
        ops.all_reduce(lamina.zeros(2, dtype=lamina.int64), "min", PAIR)
        whole = ops.all_gather(a, 0, PAIR)
        return whole, ops.all_gather(whole[:2], 0, PAIR), whole[:2].clone(), ops.broadcast(whole, 0, PAIR)

    for _ in range(3):
        a = lamina.tensor([1.0, 2.0])
        found = f(a)
        for x in found:
            x.mul_(3)
        assert [x.tolist() for x in (a, *found)] == [[1, 2], [3, 6, 3, 6], [3, 6, 3, 6], [3, 6], [3, 6, 3, 6]]
    assert "3 collectives are 1 where all ranks agree, as in 2 of 2 calls" in str(f.explain(detail=True))


# ---- real ranks
def test_ranks_join(tmp_path):
    ranks.run(
        2,
        """
        import lamina.distributed.functional as F
        dist.init_process_group()
        rank, size = dist.get_rank(), dist.get_world_size()

        @jit.trace
        def f(a, b, c):
            F.join_collectives()
            total = F.all_reduce(a) + F.all_reduce(b)
            own = (F.all_reduce(b) / size)[rank * 2:rank * 2 + 2]
            return total, F.all_gather(c, 1), F.all_gather(b, 0), lamina.exp(own), F.all_reduce(c)

        generator = np.random.default_rng(1)
        for i in range(14):
            every = generator.standard_normal((size, 3, 4, 4))
            call = f.__wrapped__ if i == 6 and rank == 0 else f  # eagerly on one rank alone
            got = call(*map(lamina.tensor, every[rank]))
            a, b, c = every.transpose(1, 0, 2, 3)
            own = np.exp(b.sum(0) / size)[rank * 2:rank * 2 + 2]
            wanted = a.sum(0) + b.sum(0), np.concatenate(list(c), 1), b.reshape(-1, 4), own, c.sum(0)
            assert all(np.allclose(x.numpy(), y, rtol=1e-12) for x, y in zip(got, wanted, strict=True)), i
        said = str(f.explain(detail=True))
        together, calls = map(int, said.partition("agree, as in ")[2].split()[:3:2])
        assert "6 collectives are 3 where" in said and 5 <= together < 13, said
        assert calls == together + rank or together < calls, said
        """,
        tmp_path,
    )


@pytest.mark.slow
def test_training_steps_join_the_broadcasts_of_buffers(tmp_path):
    """Written one by one, as DistributedDataParallel does not."""
    ranks.run(
        2,
        """
        import copy
        import lamina.distributed.functional as F
        dist.init_process_group()
        lamina.manual_seed(0)
        layers = [x for _ in range(3) for x in (nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh())]
        nets = [nn.Sequential(*layers).double()]
        nets.append(copy.deepcopy(nets[0]))
        steps = []
        for net, joins in zip(nets, (True, False), strict=True):
            model = nn.parallel.DistributedDataParallel(net, broadcast_buffers=False)
            optimizer = optim.SGD(net.parameters(), lr=0.1)

            def step(x, net=net, model=model, optimizer=optimizer, joins=joins):
                if joins:
                    F.join_collectives()
                for buffer in net.buffers():
                    dist.broadcast(buffer, 0)
                optimizer.zero_grad()
                loss = (model(x) ** 2).mean()
                loss.backward()
                optimizer.step()
                return loss

            steps.append(jit.trace(step))
        generator = np.random.default_rng(dist.get_rank())
        for i in range(12):
            x = lamina.tensor(generator.standard_normal((4 + i % 2, 6)))
            a, b = [step(x).item() for step in steps]
            assert abs(a - b) < 1e-12 * (1 + abs(b)), (i, a, b)
        for p, q in zip(nets[0].state_dict().values(), nets[1].state_dict().values(), strict=True):
            assert np.allclose(p.numpy(), q.numpy(), rtol=1e-11, atol=1e-13)
        assert "10 collectives are 3 where all ranks agree" in str(steps[0].explain(detail=True)), (
            steps[0].explain(detail=True))
        """,
        tmp_path,
    )
