"""Programs on the meta device: types without values."""

from tensor_programs import program, raised


@program
def what_ops_infer(t):
    x, y = t.empty(2, 3, device="meta"), t.empty(3, 4, device="meta", dtype=t.float64)
    functional = t.nn.functional
    image = t.empty(1, 3, 8, 8, device="meta")
    return [
        x + 1,
        x + x,
        2 * x,
        x > 0,
        x @ y.float(),
        x.sum(),
        x.sum(0),
        x.mean(1, keepdim=True),
        x.max(1).indices,
        x.T,
        x[0],
        x[:, None],
        x.view(6),
        x.reshape(3, 2),
        x.expand(4, 2, 3),
        t.cat([x, x]),
        t.stack([x, x]),
        x.double() @ y,
        x.long(),
        functional.relu(x),
        functional.softmax(x, 1),
        functional.layer_norm(x, (3,)),
        functional.linear(x, y.float().T),
        functional.conv2d(image, t.empty(5, 3, 3, 3, device="meta")),
        functional.max_pool2d(image, 2),
        x.argmax(1),
        t.einsum("ij,ik->jk", x, x),
        x.to(t.float16),
        x.gather(1, t.zeros(2, 1, dtype=t.long, device="meta")),
        functional.embedding(t.zeros(5, dtype=t.long, device="meta"), x),
        t.where(x > 0, x, 0.0),
        x.clone(),
        x.detach(),
        functional.scaled_dot_product_attention(image, image, image),
        x.sort(1).values,
        x.cumsum(0),
        x.split(1)[1],
        t.zeros_like(x),
        t.ones_like(x),
        t.empty_like(x),
        t.full_like(x, 3),
        x.new_zeros(4),
        x.std(0),
        t.outer(x[0], x[1]),
        functional.dropout(x, 0.5),
        functional.cross_entropy(x, t.zeros(2, dtype=t.long, device="meta")),
        x.masked_fill(x > 0, 1),
        t.linalg.norm(x),
        x.norm(),
        x.pow(2),
        x**0.5,
        -x,
        x.flatten(),
        x.unsqueeze(1),
        x.repeat(2, 2),
        x.tril(),
        x.clamp(0, 1),
        functional.interpolate(image, scale_factor=2),
        functional.batch_norm(image, None, None, training=True),
        x.permute(1, 0),
    ]


@program
def ways_to_make_them(t):
    return [
        t.zeros(2, device="meta"),
        t.ones(2, device="meta"),
        t.full((2,), 1.5, device="meta"),
        t.arange(5, device="meta"),
        t.eye(2, device="meta"),
        t.linspace(0, 1, 5, device="meta"),
        t.rand(2, device="meta"),
        t.randn(2, 3, device="meta"),
        t.tensor([1.0, 2.0], device="meta"),
        t.ones(2).to("meta"),
        t.ones(2).to("meta", t.float64),
        t.zeros_like(t.ones(2), device="meta"),
        t.empty(2, device=t.device("meta")),
        t.as_tensor([1, 2], device="meta"),
        t.ones(2, device="meta", requires_grad=True),
        t.zeros_like(t.ones(2, device="meta"), device="cpu"),
        t.ones_like(t.ones(2, device="meta"), device="cpu"),
        t.full_like(t.ones(2, device="meta"), 3.0, device="cpu"),
        t.empty_like(t.ones(2, device="meta")).is_meta,
        t.rand_like(t.ones(2), device="meta"),
        t.rand_like(t.ones(2, device="meta")),
    ]


@program
def what_needs_values(t):
    m, c = t.ones(2, 3, device="meta"), t.ones(2, 3)
    one = t.ones(1, device="meta")
    calls = [
        one.item,
        lambda: bool(one),
        lambda: float(one),
        lambda: int(one),
        m.tolist,
        m.numpy,
        m.nonzero,
        m.cpu,
        lambda: m.to("cpu"),
        lambda: m[m > 0],
        lambda: m.masked_select(m > 0),
        m.unique,
        lambda: c.copy_(m),
        lambda: m + c,
        lambda: t.cat([m, c]),
        lambda: t.allclose(m, m),
        lambda: t.equal(m, m),
    ]
    return (
        [raised(call) for call in calls],
        m + c[0, 0],
        m.copy_(c),
        m.add_(1),
        m.zero_(),
        m.is_meta,
        m.device.type,
    )


@program
def texts_of_them(t):
    x = t.ones(2, 3, device="meta")
    return (
        repr(x),
        repr(x.long()),
        repr(x.requires_grad_()),
        repr(t.empty(0, device="meta")),
        repr(x.sum()),
        repr(t.nn.Parameter(x.detach())),
        str(x.device),
        repr(x.device),
        x.data_ptr(),
        x.stride(),
        x.is_contiguous(),
    )


@program
def gradients_have_shapes(t):
    model = t.nn.Sequential(
        t.nn.Conv2d(3, 4, 3, padding=1, device="meta"),
        t.nn.BatchNorm2d(4, device="meta"),
        t.nn.ReLU(),
        t.nn.MaxPool2d(2),
        t.nn.Flatten(),
        t.nn.Linear(4 * 16, 10, device="meta"),
        t.nn.LayerNorm(10, device="meta"),
    )
    loss = t.nn.functional.cross_entropy(
        model(t.empty(2, 3, 8, 8, device="meta")), t.zeros(2, dtype=t.long, device="meta")
    )
    loss.backward()
    first = [p.grad for p in model.parameters()]
    x = t.ones(3, device="meta", requires_grad=True)
    (g,) = t.autograd.grad((x**3).sum(), x, create_graph=True)
    (h,) = t.autograd.grad(g.sum(), x)
    (x * 2).sum().backward()
    (x * 2).sum().backward()
    return loss, first, g, h, x.grad


@program
def a_transformer(t):
    layer = t.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, device="meta")
    found = layer(t.empty(2, 5, 16, device="meta"))
    lstm, _ = t.nn.LSTM(4, 8, device="meta")(t.empty(3, 2, 4, device="meta"))
    return found, lstm, t.nn.Embedding(10, 4, device="meta")(t.zeros(3, dtype=t.long, device="meta"))


@program
def modules_that_get_values_later(t):
    source = t.nn.Linear(3, 2)
    made = t.nn.Linear(3, 2, device="meta")
    assigned = t.nn.Linear(3, 2, device="meta")
    assigned.load_state_dict(source.state_dict(), assign=True)
    made.to_empty(device="cpu")
    made.load_state_dict(source.state_dict())
    x = t.ones(1, 3)
    skipped = t.nn.utils.skip_init(t.nn.Linear, 3, 2)
    moved = t.nn.Linear(3, 2).to("meta")
    return (
        [bool(t.equal(m(x), source(x))) for m in (made, assigned)],
        skipped.weight.device.type,
        skipped.weight.shape,
        moved.weight.is_meta,
        moved.weight.requires_grad,
        isinstance(moved.weight, t.nn.Parameter),
        assigned.weight.device.type,
        raised(moved.to, "cpu"),
    )


@program
def blocks_of_a_device(t):
    with t.device("meta"):
        a = t.ones(2)
        m = t.nn.Linear(1000, 1000)
        b = t.tensor([1.0])
        with t.device("cpu"):
            c = t.ones(2)
        d = t.rand(3), t.arange(3), t.zeros(2, device="cpu")
        e = t.nn.Embedding(5, 5).weight, t.zeros_like(c)
    return a, m.weight.is_meta, m.bias.is_meta, b, c, d, e, t.ones(2)


@program
def a_default_device(t):
    t.set_default_device("meta")
    try:
        found = t.ones(2), t.get_default_device().type
    finally:
        t.set_default_device(None)
    return found, t.ones(2)


@program
def large_models_cost_nothing(t):
    with t.device("meta"):
        model = t.nn.Sequential(*[t.nn.Linear(50_000, 50_000) for _ in range(4)])
        x = model(t.empty(7, 50_000))
    return (
        x.shape,
        sum(p.numel() for p in model.parameters()),
        sum(p.element_size() * p.nelement() for p in model.parameters()),
    )


@program
def initialisation(t):
    w = t.empty(3, 4, device="meta")
    init = t.nn.init
    return [
        init.normal_(w),
        init.uniform_(w),
        init.xavier_uniform_(w),
        init.kaiming_normal_(w),
        init.zeros_(w),
        init.ones_(w),
        init.constant_(w, 2.0),
        init.trunc_normal_(w),
        w.normal_(),
        w.bernoulli_(0.5),
    ]
