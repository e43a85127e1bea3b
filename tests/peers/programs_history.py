"""Programs about history as `autograd.graph` shows it, and about hooks on what is saved."""

from tensor_programs import program, raised


def _saver(t):
    class Square(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            seen.append((x.requires_grad, x.is_leaf))
            return g * 2 * x

    seen = []
    return Square, seen


@program
def names_and_edges(t):
    x = t.ones(2, requires_grad=True)
    y = x * x
    z = y.exp().sum()
    chain, node = [], z.grad_fn
    while node.next_functions:
        chain.append((node.name(), len(node.next_functions), node.next_functions[0][1]))
        node = node.next_functions[0][0]
    return chain, node.name(), node.variable is x, isinstance(z.grad_fn, t.autograd.graph.Node), x.grad_fn


@program
def what_a_node_saved(t):
    x, y = t.tensor([2.0, 3.0], requires_grad=True), t.tensor([4.0, 5.0], requires_grad=True)
    z, w = x * y, x.exp()
    saved = z.grad_fn._saved_self, z.grad_fn._saved_other, w.grad_fn._saved_result.detach()
    z.sum().backward()
    return saved, raised(lambda: z.grad_fn._saved_self), raised(lambda: z.grad_fn._saved_nothing)


@program
def hooks_on_nodes(t):
    x = t.tensor([2.0, 3.0], requires_grad=True)
    y = x * 3
    z = y.sum()
    log = []
    y.grad_fn.register_prehook(lambda g: log.append(("pre", *g)))
    handle = y.grad_fn.register_hook(lambda i, o: log.append(("post", i[0], *o)))
    leaf = y.grad_fn.next_functions[0][0]
    leaf.register_prehook(lambda g: (g[0] * 10,))
    leaf.register_hook(lambda i, o: log.append(("leaf", len(i), *o)))
    z.backward(retain_graph=True)
    handle.remove()
    z.backward()
    return log, x.grad


@program
def hooks_of_nodes_replace(t):
    x = t.tensor([2.0, 3.0], requires_grad=True)
    y = x * x
    y.grad_fn.register_prehook(lambda g: (g[0] * 2,))
    y.grad_fn.register_hook(lambda i, o: (i[0] + 1, i[1]))
    return t.autograd.grad(y.sum(), x)


@program
def edges_in_place_of_tensors(t):
    x = t.tensor([2.0, 3.0], requires_grad=True)
    y = x * x
    z = y.sum()
    edge = t.autograd.graph.get_gradient_edge
    a = t.autograd.grad(z, edge(y), retain_graph=True)
    b = t.autograd.grad(edge(z), edge(x), retain_graph=True)
    c = t.autograd.grad(z, (x, edge(y)))
    return a, b, c, edge(x).output_nr, raised(edge, t.ones(2))


@program
def saved_tensors_hooks_round(t):
    log = []

    def pack(x):
        log.append("pack")
        return x.detach().numpy().tolist()

    def unpack(data):
        log.append("unpack")
        return t.tensor(data)

    x = t.tensor([0.5, 1.5], requires_grad=True)
    with t.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = (x * x).exp()
    z = (y * y).sum()
    z.backward()
    return sorted(log), x.grad, raised(z.backward)


@program
def saved_tensors_hooks_second_order(t):
    x = t.tensor([0.5, 1.5], requires_grad=True)
    with t.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        y = (x.sin() * x).sum()
    (g,) = t.autograd.grad(y, x, create_graph=True)
    (h,) = t.autograd.grad(g.sum(), x)
    return g.detach(), h


@program
def saved_tensors_hooks_of_functions(t):
    square, seen = _saver(t)
    x = t.tensor([0.5, 1.5], requires_grad=True)
    log = []
    with t.autograd.graph.saved_tensors_hooks(lambda x: log.append("pack") or x.clone(), lambda x: x * 2):
        y = square.apply(x)
    y.sum().backward()
    return x.grad, log


@program
def what_hooks_may_not_do(t):
    graph = t.autograd.graph
    x = t.tensor([0.5, 1.5], requires_grad=True)
    found = []
    with graph.saved_tensors_hooks(lambda x: 1, lambda n: 3):
        y = x.exp()
    found.append(raised(y.sum().backward))

    def nested():
        with graph.disable_saved_tensors_hooks("no"), graph.saved_tensors_hooks(lambda x: x, lambda x: x):
            pass

    def inside():
        with graph.saved_tensors_hooks(lambda x: x, lambda x: x), graph.disable_saved_tensors_hooks("no"):
            pass

    def writes():
        with graph.saved_tensors_hooks(lambda x: x.mul_(2), lambda x: x):
            (x * 2).exp()

    return found, raised(nested), str(raised(nested)), raised(inside), raised(writes)


@program
def saving_elsewhere_and_writing(t):
    graph = t.autograd.graph
    x = t.tensor([0.5, 1.5], requires_grad=True)
    with graph.save_on_cpu():
        (x * x).sum().backward()
    y = t.tensor([0.5, 1.5], requires_grad=True)
    with graph.allow_mutation_on_saved_tensors():
        z = y.clone()
        out = (z**2).sum()
        z.sin_()
        out.backward()
    v = t.ones(2)
    before = v._version
    graph.increment_version(v)
    return x.grad, y.grad, v._version - before


@program
def saved_tensors_keep_what_they_are(t):
    square, seen = _saver(t)
    x = t.tensor([0.5, 1.5], requires_grad=True)
    square.apply(x).sum().backward()
    square.apply(x * 1.0).sum().backward()
    square.apply(t.ones(2)).sum()
    y = square.apply(x)
    (g,) = t.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = t.autograd.grad((g * g).sum(), x)
    return seen, x.grad, g.detach(), h, y.grad_fn.name(), y.grad_fn.saved_tensors


@program
def gradients_inside_of_backward(t):
    class Inner(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with t.enable_grad():
                return t.autograd.grad(x.sin(), x, g)[0]

    x = t.tensor([0.5, 1.5], requires_grad=True)
    Inner.apply(x * 2).sum().backward()
    return x.grad


@program
def hooks_on_many(t):
    a, b = t.ones(2, requires_grad=True), t.ones(2, requires_grad=True)
    log = []
    handle = t.autograd.graph.register_multi_grad_hook((a, b), log.append)
    (a * 2).sum().backward()
    (a * b).sum().backward()
    handle.remove()
    (a * b).sum().backward()
    t.autograd.graph.register_multi_grad_hook((a, b), lambda g: log.append("any"), mode="any")
    (a * b).sum().backward()
    return log


@program
def after_accumulation(t):
    x = t.ones(2, requires_grad=True)
    log = []
    handle = x.register_post_accumulate_grad_hook(lambda p: log.append((p is x, p.grad.tolist())))
    (x * 3).sum().backward()
    handle.remove()
    (x * 3).sum().backward()
    return log, x.grad, raised((x * 2).register_post_accumulate_grad_hook, print)
