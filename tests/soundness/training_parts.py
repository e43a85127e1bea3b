"""What random training programs are made of: features, each in the spellings that people use.

A spelling is text for several places of a program (`training_make` puts them together).  In all of it stand

    {step}   an expression for the number of this call, from 1 on: a counter's, where the program has one
    {every}  a small number of calls      {warm}  a number of calls, of a warm-up      {total}  of a schedule
    {lr}     the optimizer's rate         {decay} of an average, near 1

which are drawn for each program.  `out` is what the model gives, `loss` its loss, `h` the features in the
middle of a model, a row of eight for each example.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Spelling:
    """A way to write a feature.

    step: what {step} becomes.  defs: functions and classes of the module.  held: state, made once: in the
    module, in the function around the step, or on the object whose method it is; shared: the names of it
    that the step binds anew.  outside: the loop uses it too, so it stands in the module.  init, enter,
    inside: lines of the model's `__init__`, and of its forward before and after h is known.  parameter: of
    the step, with what the loop gives for it.  first, loss, grads, update, last: lines of the step, at its
    beginning, after the loss, after backward, in place of the optimizer's step, after that; zero: in place of
    zero_grad() before, where "" leaves it out.  returned: what the step returns beside the loss.  given,
    after: lines of the loop before and after the call, which gave `result`.
    """

    feature: str
    name: str
    step: str = ""
    defs: str = ""
    held: str = ""
    shared: tuple[str, ...] = ()
    outside: bool = False
    init: str = ""
    enter: str = ""
    inside: str = ""
    parameter: tuple[str, str] = ("", "")
    first: str = ""
    loss: str = ""
    zero: str | None = None
    grads: str = ""
    update: str = ""
    last: str = ""
    returned: str = ""
    given: str = ""
    after: str = ""


COUNTERS = (
    Spelling("counter", "on the module", "model.steps", init="self.steps = 0", first="model.steps += 1"),
    Spelling("counter", "in forward", "(model.calls + 1)", init="self.calls = 0", enter="self.calls += 1"),
    Spelling("counter", "on a class", "Stats.steps", defs="class Stats:\n    steps = 0",
             first="Stats.steps += 1"),
    Spelling("counter", "a variable", "n_steps", held="n_steps = 0", shared=("n_steps",),
             first="n_steps += 1"),
    Spelling("counter", "in a dict", "state['step']", held="state = {'step': 0, 'best': math.inf}",
             first="state['step'] += 1"),
    Spelling("counter", "a list's cell", "calls[0]", held="calls = [0]", first="calls[0] += 1"),
    Spelling("counter", "a default argument", "counter[0]", parameter=("counter=[0]", ""),
             first="counter[0] += 1"),
    Spelling("counter", "in a dataclass", "progress.step",
             defs="@dataclass\nclass Progress:\n    step: int = 0\n    epoch: float = 0.0",
             held="progress = Progress()", first="progress.step += 1\nprogress.epoch = progress.step / 4"),
    Spelling("counter", "on a namespace", "args.step", held="args = types.SimpleNamespace(step=0, lr={lr})",
             first="args.step += 1"),
    Spelling("counter", "an argument", "global_step", parameter=("global_step", "it + 1")),
    Spelling("counter", "a method ticks", "clock.now",
             defs="class Clock:\n    def __init__(self):\n        self.now = 0\n\n    def tick(self):\n"
                  "        self.now += 1\n        return self.now", held="clock = Clock()",
             first="clock.tick()"),
    Spelling("counter", "a tuple replaced", "where.step",
             defs="Where = collections.namedtuple('Where', 'step epoch')", held="where = Where(0, 0)",
             shared=("where",), first="where = where._replace(step=where.step + 1, epoch=where.step // 4)"),
    Spelling("counter", "a buffer", "int(model.seen)",
             init="self.register_buffer('seen', torch.zeros((), dtype=torch.long))", first="model.seen += 1"),
    Spelling("counter", "examples seen", "(seen // len(x) + 1)", held="seen = 0", shared=("seen",),
             last="seen += x.size(0)"),
    Spelling("counter", "epochs and steps", "(epoch * 4 + batch + 1)", held="epoch, batch = 0, -1",
             shared=("epoch", "batch"), first="batch += 1\nif batch == 4:\n    epoch, batch = epoch + 1, 0"),
    Spelling("counter", "set from outside", "settings.step",
             defs="class Settings:\n    def __init__(self):\n        self.step = 0",
             held="settings = Settings()", outside=True, given="settings.step = it + 1"),
)  # fmt: skip

_COSINE = """\
def cosine(step, total, base):
    return 0.5 * base * (1 + math.cos(math.pi * min(step, total) / total))"""
_WARM_COSINE = """\
def rate_at(step, warm, total, base):
    if step < warm:
        return base * step / warm
    progress = (step - warm) / max(1, total - warm)
    return base * max(0.1, 0.5 * (1.0 + math.cos(math.pi * progress)))"""


def _scheduler(name: str, made: str, inside: bool, step: str = "") -> Spelling:
    """A scheduler of the library's, stepped inside of the traced step or after it."""
    stepped = f"scheduler.step({step})"
    where = "inside" if inside else "outside"
    if inside:
        return Spelling(
            "schedule", f"{name} {where}", held=f"scheduler = optim.lr_scheduler.{made}", last=stepped
        )
    stepped = stepped.replace("loss.item()", "loss_of(result)")
    return Spelling(
        "schedule",
        f"{name} {where}",
        held=f"scheduler = optim.lr_scheduler.{made}",
        outside=True,
        after=stepped,
    )


_SCHEDULERS = (
    ("StepLR", "StepLR(optimizer, {every}, gamma=0.7)", ""),
    ("CosineAnnealingLR", "CosineAnnealingLR(optimizer, T_max={total})", ""),
    ("LambdaLR", "LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / {warm}))", ""),
    ("ExponentialLR", "ExponentialLR(optimizer, gamma=0.95)", ""),
    ("LinearLR", "LinearLR(optimizer, start_factor=0.2, total_iters={warm})", ""),
    ("MultiStepLR", "MultiStepLR(optimizer, [{every}, 2 * {warm}], gamma=0.5)", ""),
    ("OneCycleLR", "OneCycleLR(optimizer, max_lr={lr}, total_steps=40, cycle_momentum=False)", ""),
    ("ReduceLROnPlateau", "ReduceLROnPlateau(optimizer, factor=0.5, patience=2)", "loss.item()"),
    ("warm restarts", "CosineAnnealingWarmRestarts(optimizer, T_0={warm})", ""),
    ("SequentialLR",
     "SequentialLR(optimizer, [optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters={warm}), "
     "optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max={total})], [{warm}])", ""),
)  # fmt: skip

SCHEDULES = (
    Spelling("schedule", "groups, warm-up by min()",
             first="for group in optimizer.param_groups:\n"
                   "    group['lr'] = {lr} * min(1.0, {step} / {warm})"),
    Spelling("schedule", "groups, cosine", defs=_COSINE,
             first="lr = cosine({step}, {total}, {lr})\nfor group in optimizer.param_groups:\n"
                   "    group['lr'] = lr"),
    Spelling("schedule", "groups, warm-up and cosine", defs=_WARM_COSINE,
             first="for group in optimizer.param_groups:\n"
                   "    group['lr'] = rate_at({step}, {warm}, {total}, {lr})"),
    Spelling("schedule", "groups, before the call", defs=_WARM_COSINE,
             given="for group in optimizer.param_groups:\n"
                   "    group['lr'] = rate_at(it, {warm}, {total}, {lr})"),
    Spelling("schedule", "groups, noam",
             first="optimizer.param_groups[0]['lr'] = {lr} * min({step} ** -0.5, {step} * {warm} ** -1.5)"),
    Spelling("schedule", "groups, multiplied", last="for g in optimizer.param_groups:\n    g['lr'] *= 0.97"),
    Spelling("schedule", "groups, divided every k",
             last="if {step} % {every} == 0:\n    for g in optimizer.param_groups:\n        g['lr'] /= 1.5"),
    Spelling("schedule", "groups, inverse time",
             held="base_rates = [g['lr'] for g in optimizer.param_groups]",
             first="for g, base in zip(optimizer.param_groups, base_rates):\n"
                   "    g['lr'] = base / (1 + 0.05 * {step})"),
    Spelling("schedule", "weight decay",
             last="for g in optimizer.param_groups:\n"
                  "    g['weight_decay'] = 1e-3 * min(1.0, {step} / {warm})"),
    Spelling("schedule", "rate as an argument", parameter=("lr", "{lr} / (1 + it / {warm})"),
             first="for g in optimizer.param_groups:\n    g['lr'] = lr"),
    Spelling("schedule", "weight of a term",
             loss="weight = min(1.0, {step} / {warm})\n"
                  "loss = loss + weight * 1e-3 * sum((p ** 2).sum() for p in model.parameters())"),
    Spelling("schedule", "weight of a term, sigmoid",
             loss="beta = 1 / (1 + math.exp(-({step} - {warm}) / 2))\n"
                  "loss = loss + beta * 1e-2 * out.pow(2).mean()"),
    Spelling("schedule", "curriculum by a table", held="milestones = {0: 0.0, 5: 1e-3, 12: 1e-2}",
             loss="penalty = [v for k, v in milestones.items() if {step} >= k][-1]\n"
                  "loss = loss + penalty * out.abs().mean()"),
    Spelling("schedule", "label smoothing falls",
             loss="loss = (1 - 0.1 / {step}) * loss + (0.1 / {step}) * (out ** 2).mean()"),
    *(_scheduler(*one[:2], inside, one[2]) for one in _SCHEDULERS for inside in (True, False)),
    Spelling("schedule", "last rate returned",
             held="scheduler = optim.lr_scheduler.StepLR(optimizer, {every}, 0.8)", last="scheduler.step()",
             returned="scheduler.get_last_lr()[0]"),
)  # fmt: skip

_FROZEN_COPY = (
    "ema_model = copy.deepcopy(model)\nfor p in ema_model.parameters():\n    p.requires_grad_(False)"
)
_EMA_CLASS = """\
class EMA:
    def __init__(self, model, decay):
        self.decay, self.updates = decay, 0
        self.shadow = {n: p.detach().clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        d = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for n, p in model.named_parameters():
            self.shadow[n].mul_(d).add_(p, alpha=1 - d)"""

AVERAGES = (
    Spelling("average", "a copied model, mul_ add_", held=_FROZEN_COPY,
             last="with torch.no_grad():\n"
                  "    for e, p in zip(ema_model.parameters(), model.parameters()):\n"
                  "        e.mul_({decay}).add_(p, alpha=1 - {decay})"),
    Spelling("average", "a copied model, lerp_ of data", held=_FROZEN_COPY,
             last="for e, p in zip(ema_model.parameters(), model.parameters()):\n"
                  "    e.data.lerp_(p.data, 1 - {decay})"),
    Spelling("average", "a copied model, warm-up", held=_FROZEN_COPY,
             last="d = min({decay}, (1 + {step}) / (10 + {step}))\nwith torch.no_grad():\n"
                  "    for e, p in zip(ema_model.parameters(), model.parameters()):\n"
                  "        e.lerp_(p, 1 - d)"),
    Spelling("average", "a copied model, copy_", held=_FROZEN_COPY,
             last="with torch.no_grad():\n"
                  "    for e, p in zip(ema_model.parameters(), model.parameters()):\n"
                  "        e.copy_({decay} * e + (1 - {decay}) * p)"),
    Spelling("average", "shadow dict, lerp_",
             held="shadow = {n: p.detach().clone() for n, p in model.named_parameters()}",
             last="with torch.no_grad():\n    for n, p in model.named_parameters():\n"
                  "        shadow[n].lerp_(p, 1 - {decay})"),
    Spelling("average", "shadow dict, replaced",
             held="shadow = {n: p.detach().clone() for n, p in model.named_parameters()}",
             last="for n, p in model.named_parameters():\n"
                  "    shadow[n] = {decay} * shadow[n] + (1 - {decay}) * p.detach()"),
    Spelling("average", "shadow list, replaced",
             held="averages = [p.detach().clone() for p in model.parameters()]",
             last="with torch.no_grad():\n    for i, p in enumerate(model.parameters()):\n"
                  "        averages[i] = averages[i] * {decay} + p * (1 - {decay})"),
    Spelling("average", "shadow list, rebuilt",
             held="averages = [p.detach().clone() for p in model.parameters()]", shared=("averages",),
             last="averages = [{decay} * a + (1 - {decay}) * p.detach() for a, p in zip(averages, "
                  "model.parameters())]"),
    Spelling("average", "a class, warm-up", defs=_EMA_CLASS, held="ema = EMA(model, {decay})",
             last="ema.update(model)"),
    Spelling("average", "a class, after the call", defs=_EMA_CLASS, held="ema = EMA(model, {decay})",
             outside=True, after="ema.update(model)"),
    Spelling("average", "of state_dict",
             held="ema_state = {k: v.clone() for k, v in model.state_dict().items()}",
             last="with torch.no_grad():\n    for k, v in model.state_dict().items():\n"
                  "        if v.is_floating_point():\n"
                  "            ema_state[k].mul_({decay}).add_(v, alpha=1 - {decay})\n        else:\n"
                  "            ema_state[k].copy_(v)"),
    Spelling("average", "every k calls", held=_FROZEN_COPY,
             last="if {step} % {every} == 0:\n    with torch.no_grad():\n"
                  "        for e, p in zip(ema_model.parameters(), model.parameters()):\n"
                  "            e.lerp_(p, 1 - {decay})"),
    Spelling("average", "a teacher in the loss", held=_FROZEN_COPY,
             loss="with torch.no_grad():\n    target = ema_model(x)\n"
                  "loss = loss + 0.1 * F.mse_loss(out, target)",
             last="with torch.no_grad():\n"
                  "    for e, p in zip(ema_model.parameters(), model.parameters()):\n"
                  "        e.mul_({decay}).add_(p, alpha=1 - {decay})"),
    Spelling("average", "of the loss, a tensor", held="ema_loss = torch.zeros(())",
             last="ema_loss.mul_(0.9).add_(loss.detach(), alpha=0.1)"),
    Spelling("average", "a target copied every k", held=_FROZEN_COPY,
             last="if {step} % {every} == 0:\n    ema_model.load_state_dict(model.state_dict())"),
    Spelling("average", "stochastic weight average",
             held="swa, n_averaged = [p.detach().clone() for p in model.parameters()], 0",
             shared=("n_averaged",),
             last="if {step} > {warm}:\n    with torch.no_grad():\n"
                  "        for a, p in zip(swa, model.parameters()):\n"
                  "            a += (p - a) / (n_averaged + 1)\n    n_averaged += 1"),
)  # fmt: skip

GRADIENTS = (
    Spelling("gradients", "clipped, norm returned",
             grads="norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)", returned="norm"),
    Spelling("gradients", "clipped, norm appended", held="norms = []",
             grads="norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)\nnorms.append(norm.item())"),
    Spelling("gradients", "clipped, norm kept", held="last_norm = None", shared=("last_norm",),
             grads="last_norm = nn.utils.clip_grad_norm_(model.parameters(), 2.0)"),
    Spelling("gradients", "clipped, limit warms up",
             grads="nn.utils.clip_grad_norm_(model.parameters(), max_norm=max(0.5, 5.0 / {step}))"),
    Spelling("gradients", "clipped by value", grads="nn.utils.clip_grad_value_(model.parameters(), 0.1)"),
    Spelling("gradients", "norms by name", held="grad_norms = {}",
             grads="for n, p in model.named_parameters():\n    if p.grad is not None:\n"
                   "        grad_norms[n] = p.grad.norm().item()"),
    Spelling("gradients", "norm summed in floats", held="norms = []",
             grads="total = 0.0\nfor p in model.parameters():\n    if p.grad is not None:\n"
                   "        total += p.grad.detach().norm(2).item() ** 2\nnorms.append(total ** 0.5)"),
    Spelling("gradients", "norm as a tensor",
             grads="norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not "
                   "None]).norm()", returned="norm"),
    Spelling("gradients", "accumulated", zero="", grads="", loss="loss = loss / {every}",
             update="if {step} % {every} == 0:\n    optimizer.step()\n    optimizer.zero_grad()"),
    Spelling("gradients", "accumulated, clipped", zero="", loss="loss = loss / {every}",
             update="if ({step} + 1) % {every} == 0:\n"
                    "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    optimizer.step()\n"
                    "    optimizer.zero_grad(set_to_none=True)"),
    Spelling("gradients", "zeroed, not None", zero="optimizer.zero_grad(set_to_none=False)"),
    Spelling("gradients", "zeroed by the model", zero="model.zero_grad()"),
    Spelling("gradients", "zeroed by hand", zero="for p in model.parameters():\n    p.grad = None"),
    Spelling("gradients", "zeroed after", zero="", last="optimizer.zero_grad()"),
    Spelling("gradients", "zeroed in place",
             zero="for p in model.parameters():\n    if p.grad is not None:\n        p.grad.zero_()"),
    Spelling("gradients", "noise added",
             grads="for p in model.parameters():\n    if p.grad is not None:\n"
                   "        p.grad.add_(torch.randn_like(p.grad), alpha=0.01 / {step})"),
    Spelling("gradients", "step only where finite", held="skipped = 0", shared=("skipped",),
             grads="norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
             update="if torch.isfinite(norm):\n    optimizer.step()\nelse:\n    skipped += 1"),
    Spelling("gradients", "step only where small", held="spikes = []",
             grads="norm = nn.utils.clip_grad_norm_(model.parameters(), 10.0)",
             update="if norm.item() < 50.0:\n    optimizer.step()\nelse:\n    spikes.append({step})"),
    Spelling("gradients", "a penalty on the gradient",
             first="x = x.clone().requires_grad_() if x.is_floating_point() else x",
             loss="if x.requires_grad:\n    (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)\n"
                  "    loss = loss + 0.01 * g.pow(2).mean()"),
    Spelling("gradients", "a hook clamps",
             held="for p in model.parameters():\n    if p.requires_grad:\n"
                  "        p.register_hook(lambda g: g.clamp(-0.5, 0.5))"),
    Spelling("gradients", "scaled by hand",
             grads="for p in model.parameters():\n    if p.grad is not None:\n"
                   "        p.grad.mul_(min(1.0, {step} / {warm}))"),
    Spelling("gradients", "ratio of update and weight", held="ratios = []",
             grads="with torch.no_grad():\n"
                   "    ratios.append([(p.grad.std() / (p.std() + 1e-3)).item() for p in "
                   "model.parameters() if p.grad is not None and p.ndim > 1])"),
    Spelling("gradients", "largest returned",
             grads="grads = [p.grad for p in model.parameters() if p.grad is not None]\n"
                   "largest = max(g.abs().max().item() for g in grads)",
             returned="largest"),
    Spelling("gradients", "a copy kept", held="previous = {}",
             grads="for n, p in model.named_parameters():\n    if p.grad is not None:\n"
                   "        previous[n] = p.grad.detach().clone()"),
)  # fmt: skip

_METER = """\
class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count"""
_WRITER = """\
class Writer:
    def __init__(self):
        self.scalars = collections.defaultdict(list)

    def add_scalar(self, tag, value, step):
        self.scalars[tag].append((step, value))"""

STATISTICS = (
    Spelling("statistics", "running mean in a float", held="running = None", shared=("running",),
             last="running = loss.item() if running is None else 0.9 * running + 0.1 * loss.item()"),
    Spelling("statistics", "running mean in a dict", held="stats = {'loss': 0.0, 'n': 0}",
             last="stats['n'] += 1\nstats['loss'] += (loss.item() - stats['loss']) / stats['n']"),
    Spelling("statistics", "item returned", returned="loss.item()"),
    Spelling("statistics", "float returned", returned="float(loss)"),
    Spelling("statistics", "item appended", held="losses = []", last="losses.append(loss.item())"),
    Spelling("statistics", "item appended outside", held="losses = []", outside=True,
             after="losses.append(loss_of(result))"),
    Spelling("statistics", "tensor appended", held="losses = []", last="losses.append(loss.detach())"),
    Spelling("statistics", "printed", last="print('loss', loss.item())"),
    Spelling("statistics", "printed, f-string", last='print(f"step {{step}}: loss {loss.item():.4f}")'),
    Spelling("statistics", "text returned", last="line = f'{loss.item():.3f}'", returned="line"),
    Spelling("statistics", "text by format", held="lines = []",
             last="lines.append('{:d} {:.3f}'.format({step}, loss.item()))"),
    Spelling("statistics", "text by percent", held="lines = []",
             last="lines.append('%d %.3e' % ({step}, float(loss)))"),
    Spelling("statistics", "right ones counted", held="n_right = n_all = 0", shared=("n_right", "n_all"),
             last="{hits}\nn_right += hits.sum().item()\nn_all += hits.numel()"),
    Spelling("statistics", "accuracy returned", last="{hits}\naccuracy = hits.double().mean().item()",
             returned="accuracy"),
    Spelling("statistics", "history of dicts", held="history = []",
             last="history.append({'step': {step}, 'loss': loss.item()})"),
    Spelling("statistics", "deque", held="window = collections.deque(maxlen=5)",
             last="window.append(loss.item())\nsmooth = sum(window) / len(window)", returned="smooth"),
    Spelling("statistics", "Counter", held="outcomes, best = collections.Counter(), math.inf",
             shared=("best",),
             last="value = loss.item()\noutcomes['better' if value < best else 'worse'] += 1\n"
                  "best = min(best, value)"),
    Spelling("statistics", "defaultdict", held="metrics = collections.defaultdict(list)",
             last="metrics['loss'].append(loss.item())\nmetrics['step'].append({step})"),
    Spelling("statistics", "a meter", defs=_METER, held="meter = AverageMeter()",
             last="meter.update(loss.item(), len(x))"),
    Spelling("statistics", "a writer", defs=_WRITER, held="writer = Writer()",
             last="writer.add_scalar('train/loss', loss.item(), {step})"),
    Spelling("statistics", "best kept", held="best = math.inf", shared=("best",),
             last="best = min(best, loss.item())"),
    Spelling("statistics", "best by comparison", held="best, best_step = math.inf, 0",
             shared=("best", "best_step"),
             last="if loss.item() < best:\n    best, best_step = loss.item(), {step}"),
    Spelling("statistics", "patience", held="patience = {'best': math.inf, 'waited': 0}",
             last="if loss.item() < patience['best'] - 1e-3:\n"
                  "    patience['best'], patience['waited'] = loss.item(), 0\nelse:\n"
                  "    patience['waited'] += 1"),
    Spelling("statistics", "sum in a tensor", held="loss_sum = torch.zeros(())",
             last="loss_sum.add_(loss.detach())"),
    Spelling("statistics", "sum rebound", held="loss_sum = 0.0", shared=("loss_sum",),
             last="loss_sum += loss.detach()"),
    Spelling("statistics", "variance by Welford", held="mean, m2 = 0.0, 0.0", shared=("mean", "m2"),
             last="delta = loss.item() - mean\nmean += delta / {step}\nm2 += delta * (loss.item() - mean)"),
    Spelling("statistics", "dict returned", last="{hits}",
             returned="{'loss': loss.item(), 'hits': hits.sum().item(), 'step': {step}}"),
    Spelling("statistics", "perplexity", held="perplexities = []",
             last="perplexities.append(round(math.exp(min(20.0, loss.item())), 4))"),
    Spelling("statistics", "rounded", last="rounded = round(loss.item(), 3)", returned="rounded"),
    Spelling("statistics", "rows kept", held="table = []",
             last="table.append(({step}, loss.item(), optimizer.param_groups[0]['lr']))"),
)  # fmt: skip

STATES = (
    Spelling("state", "batch norm", init="self.norm = nn.BatchNorm1d(8)", inside="h = self.norm(h)"),
    Spelling("state", "batch norm, own momentum", init="self.norm = nn.BatchNorm1d(8, momentum=None)",
             inside="h = self.norm(h)"),
    Spelling("state", "running buffer, replaced", init="self.register_buffer('running', torch.zeros(8))",
             inside="if self.training:\n    self.running = 0.9 * self.running + 0.1 * h.detach().mean(0)\n"
                    "h = h - self.running"),
    Spelling("state", "running buffer, written", init="self.register_buffer('running', torch.zeros(8))",
             inside="with torch.no_grad():\n    self.running.mul_(0.9).add_(h.mean(0), alpha=0.1)\n"
                    "h = h - 0.5 * self.running"),
    Spelling("state", "hidden state carried", init="self.hidden = None",
             inside="if self.hidden is not None:\n    h = h + 0.1 * self.hidden\nself.hidden = h.detach()"),
    Spelling("state", "evaluated inside",
             last="model.eval()\nwith torch.no_grad():\n    score = {criterion}(model(x), y)\nmodel.train()",
             returned="score"),
    Spelling("state", "dropout, p scheduled", init="self.p = 0.5",
             inside="h = F.dropout(h, self.p, self.training)",
             first="model.p = max(0.05, 0.5 - 0.02 * {step})"),
    Spelling("state", "Dropout, p scheduled", init="self.drop = nn.Dropout(0.3)", inside="h = self.drop(h)",
             first="model.drop.p = min(0.5, 0.02 * {step})"),
    Spelling("state", "Dropout", init="self.drop = nn.Dropout(0.2)", inside="h = self.drop(h)"),
    Spelling("state", "temperature falls", init="self.temperature = 2.0", inside="h = h / self.temperature",
             first="model.temperature = max(0.5, 2.0 * 0.95 ** {step})"),
    Spelling("state", "temperature multiplied", init="self.temperature = 2.0",
             inside="h = torch.softmax(h / self.temperature, -1) * 8", last="model.temperature *= 0.97"),
    Spelling("state", "noise falls", init="self.noise = 0.5",
             inside="if self.training:\n    h = h + self.noise * torch.randn_like(h)",
             last="model.noise *= 0.9"),
    Spelling("state", "noise set outside", init="self.noise = 0.5",
             inside="h = h + self.noise * torch.randn_like(h)", given="model.noise = 0.5 / (it + 1)"),
    Spelling("state", "activation kept", init="self.last = None", inside="self.last = h.detach()"),
    Spelling("state", "activation norms listed", init="self.norms = []",
             inside="self.norms.append(h.norm().item())"),
    Spelling("state", "a hook collects",
             held="features = {}\n"
                  "model.head.register_forward_hook(lambda m, a, o: features.update(out=o.detach()))"),
    Spelling("state", "frozen at a step",
             first="if {step} == {warm}:\n    for p in model.head.parameters():\n"
                   "        p.requires_grad_(False)"),
    Spelling("state", "thawed outside",
             held="for p in model.head.parameters():\n    p.requires_grad_(False)", outside=True,
             given="if it == {warm}:\n    for p in model.head.parameters():\n        p.requires_grad_(True)"),
    Spelling("state", "a memory bank", init="self.register_buffer('bank', torch.zeros(6, 8))\nself.ptr = 0",
             inside="self.bank[self.ptr] = h.detach().mean(0)\nself.ptr = (self.ptr + 1) % 6\n"
                    "h = h + 0.1 * self.bank.mean(0)"),
    Spelling("state", "a queue of features", init="self.queue = collections.deque(maxlen=3)",
             inside="self.queue.append(h.detach())\nh = h + 0.1 * sum(self.queue) / len(self.queue)"),
    Spelling("state", "layers dropped at random", init="self.extra = nn.Linear(8, 8)",
             inside="if not self.training or torch.rand(1).item() > 0.2:\n"
                    "    h = h + torch.tanh(self.extra(h))"),
    Spelling("state", "loss kept on the model", init="self.aux = None",
             inside="self.aux = 1e-3 * h.pow(2).mean()", loss="loss = loss + model.aux"),
    Spelling("state", "losses listed on the model", init="self.losses = []",
             inside="self.losses.append(1e-3 * h.abs().mean())",
             loss="loss = loss + sum(model.losses)\nmodel.losses.clear()"),
    Spelling("state", "mode by a flag", init="self.warming = True",
             inside="if self.warming:\n    h = h.detach() + 0.5 * (h - h.detach())",
             first="model.warming = {step} < {warm}"),
    Spelling("state", "depth grows",
             init="self.depth = 1\nself.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])",
             inside="for block in self.blocks[:self.depth]:\n    h = h + torch.tanh(block(h))",
             first="model.depth = 1 + min(2, {step} // {warm})"),
    Spelling("state", "a codebook counts", init="self.register_buffer('usage', torch.zeros(8))",
             inside="with torch.no_grad():\n    self.usage += F.one_hot(h.argmax(-1), 8).sum(0)"),
    Spelling("state", "running range", init="self.low, self.high = math.inf, -math.inf",
             inside="self.low = min(self.low, h.min().item())\nself.high = max(self.high, h.max().item())"),
)  # fmt: skip

LOGGING = (
    Spelling("logging", "printed every k",
             last='if {step} % {every} == 0:\n    print(f"{{step}} {loss.item():.4f}")'),
    Spelling("logging", "printed every k, with the rate",
             last="if {step} % {every} == 0:\n"
                  '    print(f"{{step}:4d} | {loss.item():.6f} | lr '
                  "{optimizer.param_groups[0]['lr']:.2e}\")"),
    Spelling("logging", "collected every k", held="log = []",
             last="if {step} % {every} == 0:\n    log.append(({step}, loss.item()))"),
    Spelling("logging", "a logger", held="logger = logging.getLogger('soundness')",
             last="if {step} % {every} == 0:\n    logger.info('step %d loss %.4f', {step}, loss.item())"),
    Spelling("logging", "evaluated every k", held="scores = []",
             last="if {step} % {every} == 0:\n    model.eval()\n    with torch.no_grad():\n"
                  "        scores.append({criterion}(model(x), y).item())\n    model.train()"),
    Spelling("logging", "checkpoint every k", held="checkpoint = {}",
             last="if {step} % {every} == 0:\n"
                  "    checkpoint.update({k: v.detach().clone() for k, v in model.state_dict().items()})"),
    Spelling("logging", "verbose flag", held="verbose = False", outside=True,
             given="verbose = it % {every} == 0", last="if verbose:\n    print('verbose', loss.item())"),
    Spelling("logging", "printed outside", outside=True,
             after="if it % {every} == 0:\n    print(it, loss_of(result))"),
    Spelling("logging", "time to report", held="report_at = {every}", shared=("report_at",),
             last="if {step} >= report_at:\n    print('report', {step})\n    report_at += {every}"),
)  # fmt: skip

FEATURES: dict[str, tuple[Spelling, ...]] = {
    "counter": COUNTERS, "schedule": SCHEDULES, "average": AVERAGES, "gradients": GRADIENTS,
    "statistics": STATISTICS, "state": STATES, "logging": LOGGING,
}  # fmt: skip


@dataclass(frozen=True)
class Body:
    """What a model does before its head: its layers, how it comes to h, and what a batch of {n} is.

    No gradient is zero but for rounding (as that of a bias before a softmax), which optimizers would blow up.
    """

    name: str
    init: str
    forward: str
    example: str = "torch.randn({n}, 6)"


BODIES = (
    Body("mlp", "self.body = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 8))",
         "h = torch.tanh(self.body(x))"),
    Body("two layers", "self.first, self.second = nn.Linear(6, 10), nn.Linear(10, 8)",
         "h = F.gelu(self.first(x))\nh = F.silu(self.second(h))"),
    Body("residual",
         "self.stem = nn.Linear(6, 8)\nself.blocks_ = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])",
         "h = self.stem(x)\nfor block in self.blocks_:\n    h = h + 0.5 * torch.tanh(block(h))"),
    Body("indexed list", "self.layers = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 8)])",
         "h = x\nfor i in range(len(self.layers)):\n    h = self.layers[i](h)\n"
         "    h = F.relu(h) if i < len(self.layers) - 1 else h"),
    Body("branches", "self.branches = nn.ModuleDict({'a': nn.Linear(6, 8), 'b': nn.Linear(6, 8)})",
         "h = sum(torch.sigmoid(branch(x)) for branch in self.branches.values())"),
    Body("convolution", "self.conv = nn.Conv2d(1, 3, 3, padding=1)\nself.flat = nn.Linear(12, 8)",
         "h = F.avg_pool2d(F.relu(self.conv(x)), 2).flatten(1)\nh = self.flat(h)",
         "torch.randn({n}, 1, 4, 4)"),
    Body("gru", "self.rnn = nn.GRU(4, 8, batch_first=True)", "states, _ = self.rnn(x)\nh = states[:, -1]",
         "torch.randn({n}, 3, 4)"),
    Body("embedding", "self.embed = nn.Embedding(10, 8)\nself.mix = nn.Linear(8, 8)",
         "h = torch.tanh(self.mix(self.embed(x).mean(1)))", "torch.randint(0, 10, ({n}, 4))"),
    Body("attention",
         "self.embed = nn.Linear(4, 8)\nself.qkv = nn.Linear(8, 24, bias=False)\nself.ln = nn.LayerNorm(8)",
         "h = self.embed(x)\nq, k, v = self.qkv(self.ln(h)).chunk(3, -1)\n"
         "weights = (q @ k.transpose(-2, -1) / math.sqrt(8)).softmax(-1)\nh = (h + weights @ v).mean(1)",
         "torch.randn({n}, 3, 4)"),
)  # fmt: skip

# Outputs, target, loss, and which of the outputs are right.
TASKS = (
    ("1", "torch.randn({n}, 1)", "F.mse_loss", "hits = (out.detach() - y).abs() < 0.5"),
    ("3", "torch.randint(0, 3, ({n},))", "F.cross_entropy", "hits = out.argmax(1) == y"),
    ("2", "torch.randn({n}, 2)", "F.smooth_l1_loss", "hits = (out.detach() > 0) == (y > 0)"),
    ("1", "torch.randint(0, 2, ({n}, 1)).double()", "F.binary_cross_entropy_with_logits",
     "hits = (out.detach() > 0) == (y > 0.5)"),
)  # fmt: skip

OPTIMIZERS = (
    "optim.SGD(model.parameters(), lr={lr})", "optim.SGD(model.parameters(), lr={lr}, momentum=0.9)",
    "optim.SGD(model.parameters(), lr={lr}, momentum=0.9, nesterov=True, weight_decay=1e-4)",
    "optim.Adam(model.parameters(), lr={lr})", "optim.Adam(model.parameters(), lr={lr}, betas=(0.8, 0.95))",
    "optim.AdamW(model.parameters(), lr={lr}, weight_decay=0.01)",
    "optim.RMSprop(model.parameters(), lr={lr})",
    "optim.Adagrad(model.parameters(), lr={lr}, eps=1e-8)",
    "optim.AdamW([{'params': [p for p in model.parameters() if p.ndim > 1], 'weight_decay': 0.1}, "
    "{'params': [p for p in model.parameters() if p.ndim < 2], 'weight_decay': 0.0}], lr={lr})",
    "optim.SGD([{'params': model.head.parameters(), 'lr': 2 * {lr}}, {'params': [p for n, p in "
    "model.named_parameters() if not n.startswith('head')]}], lr={lr}, momentum=0.5)",
)  # fmt: skip
