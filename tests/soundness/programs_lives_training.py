"""Programs that train while objects come and go: what tells of a death, or holds on to nothing, in a step."""

from __future__ import annotations

import collections
import contextlib
import types
import weakref

from battery import lib as t
from battery import program
from networks import EPS, goal, network

F = t.nn.functional


def trained(w, more=lambda step: None, before=lambda model, y: None, after=lambda model, loss: None, **see):
    """A traced training step with something before the loss and after the update; targets change."""
    model = network()
    optimizer = t.optim.Adam(model.parameters(), lr=0.01, eps=EPS)
    w.see(parameters=list(model.parameters()), **see)

    @w.trace
    def step(x, y):
        before(model, y)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        after(model, loss)
        return loss.detach()

    for k, values in enumerate(w.rounds((6.0, 8.0), (9.0, 5.0))):
        more(k)
        w.call(step, w.m, goal(*values))


class Spoken:
    """Says into a list that it dies."""

    def __init__(self, log, name):
        self.log, self.name = log, name

    def __del__(self):
        self.log.append(self.name)
        del self.log[:-6]


@program("lives in training", chained=True)
def a_resource_lives_for_one_step(w):
    log = []

    def after(model, loss):
        held = Spoken(log, "step")
        held.loss = 1
        log.append("before")

    trained(w, after=after, log=log)


@program("lives in training", chained=True)
def the_last_batch_is_kept_in_place_of_the_one_before(w):
    log, held = [], types.SimpleNamespace(batch=None)

    def before(model, y):
        held.batch = Spoken(log, len(log))

    trained(w, before=before, log=log)


@program("lives in training", chained=True)
def the_last_loss_is_held_weakly(w):
    held = types.SimpleNamespace(loss=None, alive=[])

    def after(model, loss):
        held.alive.append(held.loss is not None and held.loss() is not None)
        del held.alive[:-4]
        held.loss = weakref.ref(loss)

    trained(w, after=after, alive=held.alive)


@program("lives in training", chained=True)
def a_model_is_reached_weakly(w):
    keep = []

    def before(model, y):
        keep.append(weakref.ref(model)() is model)
        del keep[:-2]

    trained(w, before=before, keep=keep)


@program("lives in training", chained=True)
def a_layer_is_reached_by_a_weak_proxy(w):
    held = types.SimpleNamespace(layer=None, seen=[])

    def before(model, y):
        if held.layer is None:
            held.layer = weakref.proxy(model[0])
        held.seen.append(held.layer.in_features)
        del held.seen[:-2]

    trained(w, before=before, seen=held.seen)


@program("lives in training", chained=True)
def statistics_hang_weakly_on_layers(w):
    norms = weakref.WeakKeyDictionary()

    def after(model, loss):
        for layer in (model[0], model[2]):
            norms[layer] = norms.get(layer, 0) + 1

    trained(w, after=after, counts=lambda: sorted(norms.values()))


@program("lives in training", chained=True)
def a_finalizer_is_hung_on_a_tensor_of_the_step(w):
    log = []

    def after(model, loss):
        weakref.finalize(loss, log.append, "loss").atexit = False
        del log[:-3]

    trained(w, after=after, log=log)


@program("lives in training", chained=True)
def a_generator_gives_the_weights_of_terms(w):
    log = []

    def weights():
        try:
            yield 1.0
            yield 0.5
        finally:
            log.append("closed")
            del log[:-3]

    def after(model, loss):
        log.append(next(weights()))

    trained(w, after=after, log=log)


@program("lives in training", chained=True)
def a_generator_runs_through_the_layers(w):
    log = []

    def sizes(model):
        for p in model.parameters():
            try:
                yield p.numel()
            finally:
                log.append("one")
                del log[:-3]

    def after(model, loss):
        log.append(sum(sizes(model)))

    trained(w, after=after, log=log)


@program("lives in training", chained=True)
def a_context_closes_what_it_opened(w):
    log = []

    @contextlib.contextmanager
    def opened(name):
        held = Spoken(log, name)
        try:
            yield held
        finally:
            log.append(f"{held.name} left")

    def before(model, y):
        with opened("a"), opened("b"):
            log.append("inside")

    trained(w, before=before, log=log)


@program("lives in training", chained=True)
def a_stack_of_contexts_unwinds(w):
    log = []

    def after(model, loss):
        with contextlib.ExitStack() as stack:
            for k in range(2):
                stack.callback(log.append, k)
            stack.enter_context(contextlib.suppress(ValueError))
            log.append("inside")
            del log[:-4]

    trained(w, after=after, log=log)


@program("lives in training", chained=True)
def a_cycle_is_made_and_left(w):
    def after(model, loss):
        one, two = types.SimpleNamespace(), types.SimpleNamespace()
        one.other, two.other, one.loss = two, one, loss

    trained(w, after=after)


@program("lives in training", chained=True)
def a_pool_of_objects_is_used_again(w):
    pool, log = [], []

    def before(model, y):
        slot = pool.pop() if pool else types.SimpleNamespace(uses=0)
        slot.uses += 1
        log.append(slot.uses)
        del log[:-3]
        pool.append(slot)

    def more(k):
        pool.clear()

    trained(w, more, before=before, pool=pool, log=log)


@program("lives in training", chained=True)
def a_hook_is_hung_and_taken_off_in_a_step(w):
    seen = []

    def before(model, y):
        handle = model[0].register_forward_hook(lambda module, args, out: seen.append(tuple(out.shape)))
        model(w.m)
        handle.remove()
        del seen[:-2]

    trained(w, before=before, seen=seen)


@program("lives in training", chained=True)
def an_error_is_caught_with_what_it_holds(w):
    log = []

    def after(model, loss):
        try:
            raise ValueError(Spoken(log, "held"))
        except ValueError as error:
            log.append(len(error.args))

    trained(w, after=after, log=log)


@program("lives in training", chained=True)
def an_object_is_passed_from_step_to_step(w):
    log, held = [], types.SimpleNamespace(state=None)

    class State:
        def __init__(self, age):
            self.age = age

        def __del__(self):
            log.append(self.age)
            del log[:-3]

    def after(model, loss):
        held.state = State(held.state.age + 1 if held.state is not None else 0)

    def more(k):
        held.state = None

    trained(w, more, after=after, log=log)


@program("lives in training", chained=True)
def objects_wait_in_a_deque_until_they_fall_out(w):
    log, queue = [], collections.deque(maxlen=2)

    def after(model, loss):
        queue.append(Spoken(log, len(log) % 5))

    trained(w, after=after, log=log)
