"""Programs that draw random numbers: from the default generator, from their own, with seeds that change."""

from battery import lib as t
from battery import program


@program("random numbers")
def the_seed_is_set_outside(w):
    @w.trace
    def f(x):
        return x + t.randn(4), t.rand(2), t.randint(0, 10, (3,))

    for seed in w.rounds(0, 1, 0):
        t.manual_seed(seed)
        w.call(f, w.x)


@program("random numbers")
def the_seed_is_set_inside(w):
    seed = 0

    @w.trace
    def f(x):
        t.manual_seed(seed)
        return x + t.randn(4)

    def with_one_more(x):
        return f(x), t.rand(1)

    for seed in w.rounds(0, 1):
        w.call(with_one_more, w.x)


@program("random numbers")
def a_generator_is_replaced(w):
    generator = t.Generator()

    @w.trace
    def f(x):
        return x + t.randn(4, generator=generator)

    for seed in w.rounds(1, 2, 1):
        generator = t.Generator()
        generator.manual_seed(seed)
        w.call(f, w.x)


@program("random numbers")
def a_generator_is_an_argument(w):
    @w.trace
    def f(x, generator):
        return x * t.rand(4, generator=generator)

    a, b = t.Generator(), t.Generator()
    for generator, seed in w.rounds((a, 1), (b, 1), (None, 2), (a, None)):
        if seed is not None:
            (generator or t).manual_seed(seed)
        w.call(f, w.x, generator)


@program("random numbers")
def numbers_are_drawn_between_the_calls(w):
    @w.trace
    def f(x):
        return x + t.randn(4)

    for drawn in w.rounds(0, 1, 5):
        t.randn(drawn)
        w.call(f, w.x)
        w.note(t.rand(1))


@program("random numbers")
def the_state_is_restored(w):
    @w.trace
    def f(x):
        return x + t.randn(4)

    state = t.get_rng_state()
    for again in w.rounds(False, True):
        if again:
            t.set_rng_state(state)
        w.call(f, w.x)


@program("random numbers")
def the_state_is_kept_inside(w):
    restore = True

    @w.trace
    def f(x):
        state = t.get_rng_state()
        y = x + t.randn(4)
        if restore:
            t.set_rng_state(state)
        return y

    for restore in w.rounds(True, False):
        w.call(f, w.x)


@program("random numbers")
def a_forked_stretch(w):
    fork = True

    @w.trace
    def f(x):
        if not fork:
            return x + t.randn(4)
        with t.random.fork_rng():
            t.manual_seed(5)
            return x + t.randn(4)

    for fork in w.rounds(True, False):
        w.call(f, w.x)


@program("random numbers")
def a_draw_decides(w):
    limit = 0.5

    @w.trace
    def f(x):
        if t.rand(1).item() < limit:
            return x + t.rand(4)
        return x - 1

    for limit in w.rounds(0.5, 0.0, 1.0):
        w.call(f, w.x)


@program("random numbers")
def the_number_of_draws_changes(w):
    n = 1

    @w.trace
    def f(x):
        for _ in range(n):
            x = x + t.rand(4)
        return x

    for n in w.rounds(1, 3, 0):
        w.call(f, w.x)
        w.note(t.rand(1))


@program("random numbers")
def a_draw_before_an_exception(w):
    @w.trace
    def f(x, y):
        z = x + t.rand(4)
        return z @ y

    for y in w.rounds(w.x.clone(), w.m, w.x * 2):
        w.call(f, w.x, y)
        w.note(t.rand(1))


@program("random numbers")
def tensors_are_filled_at_random(w):
    @w.trace
    def f(x, low):
        x.uniform_(low, low + 1.0)
        y = t.empty(4).normal_()
        return t.bernoulli(x.clamp(0, 1)), y, t.multinomial(t.ones(4), 2), t.randperm(4)

    for low in w.rounds(0.0, 5.0):
        w.call(f, w.x, low)


@program("random numbers")
def noise_is_drawn_once_and_kept(w):
    noise = None

    @w.trace
    def f(x):
        nonlocal noise
        if noise is None:
            noise = t.randn(4)
        return x + noise

    for reset in w.rounds(False, True):
        if reset:
            noise = None
        w.call(f, w.x)


@program("random numbers")
def two_dropouts_differ(w):
    p = 0.5

    @w.trace
    def f(x):
        drop = t.nn.functional.dropout
        return drop(x, p), drop(x, p), t.rand_like(x), t.randn_like(x)

    for p in w.rounds(0.5, 0.25):
        w.call(f, w.x)


@program("random numbers")
def dropout_under_gradients(w):
    weight = t.ones(4, requires_grad=True)
    p = 0.5

    @w.trace
    def f(x):
        return t.nn.functional.dropout(x * weight, p)

    def step(x):
        weight.grad = None
        y = f(x)
        y.sum().backward()
        return y.detach(), weight.grad.clone()

    for p in w.rounds(0.5, 0.25):
        w.call(step, w.x)


@program("random numbers")
def one_generator_serves_two_functions(w):
    generator = t.Generator()
    shift = 0.0

    @w.trace
    def f(x):
        return x + t.rand(4, generator=generator) + shift

    @w.trace
    def g(x):
        return x * t.randn(4, generator=generator) + f(x)

    for shift in w.rounds(0.0, 1.0):
        generator.manual_seed(3)
        w.call(f, w.x)
        w.call(g, w.x)


@program("random numbers")
def a_layer_is_initialized_again(w):
    layer = t.nn.Linear(4, 2)
    w.see(layer=layer)

    @w.trace
    def f(x):
        with t.no_grad():
            layer.weight.normal_(0, 0.5)
            t.nn.init.zeros_(layer.bias)
            return layer(x)

    for seed in w.rounds(1, 2):
        t.manual_seed(seed)
        w.call(f, w.x)
