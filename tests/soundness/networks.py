"""What the programs that train share: a small network, and the usual step."""

import math

import battery

# Of optimizers that divide by the size of a gradient, lest they magnify the rounding of small ones.
EPS = 1.0


def numbers(*shape):
    """Fixed values between -1 and 1, other for each place."""
    t = battery.lib
    return t.sin(t.arange(float(math.prod(shape))) * 1.7 + 0.3).reshape(shape)


def network():
    """Two layers with fixed weights, small ones, lest tanh saturates."""
    nn = battery.lib.nn
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    for p in model.parameters():
        p.data.copy_(numbers(*p.shape) * 0.3)
    return model


def linear(features_in=4, features_out=3):
    """A layer with fixed weights."""
    layer = battery.lib.nn.Linear(features_in, features_out)
    for p in layer.parameters():
        p.data.copy_(numbers(*p.shape))
    return layer


def quietly(model):
    """The model without gradients, for programs that are about what is read."""
    return model.requires_grad_(False)


def stepping(w, model, optimizer, **more):
    """A traced training step of the usual kind."""
    w.see(parameters=list(model.parameters()), state=lambda: held(optimizer), **more)
    mse_loss = w.lib.nn.functional.mse_loss

    @w.trace
    def step(x, y):
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def held(optimizer):
    """What an optimizer keeps, by the order of its parameters."""
    return optimizer.state_dict()["state"]


def goal(*values):
    """Targets far from what the network gives, so that residues, and their rounding, stay of one size."""
    return battery.lib.tensor([[v] for v in values])
