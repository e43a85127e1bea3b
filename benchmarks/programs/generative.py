"""Programs that learn to draw: adversarial networks, autoencoders, flows, diffusion."""

import math

from . import program


@program
def gan(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    G = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32), nn.Tanh())
    D = nn.Sequential(nn.Linear(32, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
    data = torch.randn(64, 32)
    ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)

    @trace
    def train_discriminator(real):
        opt_d.zero_grad()
        fake = G(torch.randn(64, 16)).detach()
        loss = F.binary_cross_entropy_with_logits(D(real), ones)
        loss = loss + F.binary_cross_entropy_with_logits(D(fake), zeros)
        loss.backward()
        opt_d.step()
        return loss.item()

    @trace
    def train_generator():
        opt_g.zero_grad()
        loss = F.binary_cross_entropy_with_logits(D(G(torch.randn(64, 16))), ones)
        loss.backward()
        opt_g.step()
        return loss.item()

    def step(i):
        d = train_discriminator(data)
        return d + train_generator()

    return step


@program
def dcgan(torch, trace):
    nn, F = torch.nn, torch.nn.functional

    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.ModuleList(
                [
                    nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False),
                    nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
                    nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False),
                ]
            )
            self.norms = nn.ModuleList([nn.BatchNorm2d(32), nn.BatchNorm2d(16)])

        def forward(self, z):
            for conv, norm in zip(self.net[:-1], self.norms):
                z = F.relu(norm(conv(z)))
            return torch.tanh(self.net[-1](z))

    G = Generator()
    D = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 1, 8), nn.Flatten())
    opt_g = torch.optim.Adam(G.parameters(), lr=2e-4)
    opt_d = torch.optim.Adam(D.parameters(), lr=2e-4)
    real = torch.randn(16, 1, 16, 16)

    @trace
    def train(real):
        fake = G(torch.randn(16, 16, 1, 1))
        opt_d.zero_grad()
        loss_d = F.softplus(-D(real)).mean() + F.softplus(D(fake.detach())).mean()
        loss_d.backward()
        opt_d.step()
        opt_g.zero_grad()
        loss_g = F.softplus(-D(fake)).mean()
        loss_g.backward()
        opt_g.step()
        return {"d": loss_d, "g": loss_g}

    def step(i):
        losses = train(real)
        return losses["d"].item() + losses["g"].item()

    return step


@program
def wgan_gp(torch, trace):
    nn = torch.nn
    G = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 16))
    D = nn.Sequential(nn.Linear(16, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    opt = torch.optim.Adam(D.parameters(), lr=1e-4, betas=(0.0, 0.9))
    data = torch.randn(32, 16)

    def gradient_penalty(real, fake):
        alpha = torch.rand(real.size(0), 1)
        mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
        score = D(mixed)
        (grad,) = torch.autograd.grad(
            outputs=score, inputs=mixed, grad_outputs=torch.ones_like(score), create_graph=True
        )
        return ((grad.norm(2, dim=1) - 1) ** 2).mean()

    @trace
    def critic(real):
        opt.zero_grad()
        with torch.no_grad():
            fake = G(torch.randn(32, 8))
        loss = D(fake).mean() - D(real).mean() + 10 * gradient_penalty(real, fake)
        loss.backward()
        opt.step()
        return loss

    return lambda i: critic(data).item()


@program
def vae(torch, trace):
    nn, F = torch.nn, torch.nn.functional

    class VAE(nn.Module):
        def __init__(self, d=64, h=128, z=8):
            super().__init__()
            self.fc1, self.mu, self.logvar = nn.Linear(d, h), nn.Linear(h, z), nn.Linear(h, z)
            self.fc3, self.fc4 = nn.Linear(z, h), nn.Linear(h, d)

        def encode(self, x):
            h = F.relu(self.fc1(x))
            return self.mu(h), self.logvar(h)

        def reparameterize(self, mu, logvar):
            std = torch.exp(0.5 * logvar)
            return mu + torch.randn_like(std) * std

        def decode(self, z):
            return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

        def forward(self, x):
            mu, logvar = self.encode(x.view(-1, 64))
            return self.decode(self.reparameterize(mu, logvar)), mu, logvar

    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.rand(32, 8, 8)
    losses = []

    @trace
    def train(x, beta):
        optimizer.zero_grad()
        recon, mu, logvar = model(x)
        bce = F.binary_cross_entropy(recon, x.view(-1, 64), reduction="sum")
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss = bce + beta * kld
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        return losses[-1]

    return lambda i: train(x, min(1.0, i / 10))


@program
def flow(torch, trace):
    nn = torch.nn

    class Coupling(nn.Module):
        def __init__(self, dim, flip):
            super().__init__()
            self.flip = flip
            self.net = nn.Sequential(nn.Linear(dim // 2, 32), nn.Tanh(), nn.Linear(32, dim))

        def forward(self, x):
            a, b = x.chunk(2, dim=1)
            if self.flip:
                a, b = b, a
            s, t = self.net(a).chunk(2, dim=1)
            s = torch.tanh(s)
            b = b * s.exp() + t
            return torch.cat([b, a] if self.flip else [a, b], dim=1), s.sum(1)

    layers = nn.ModuleList(Coupling(8, i % 2 == 1) for i in range(4))
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-3)
    data = torch.randn(64, 8) * 2 + 1

    @trace
    def train(x):
        z, logdet = x, 0.0
        for i, layer in enumerate(layers):
            z, ld = layer(z)
            logdet = logdet + ld
        logp = -0.5 * (z**2 + math.log(2 * math.pi)).sum(1)
        loss = -(logp + logdet).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(layers.parameters(), 1.0)
        optimizer.step()
        return loss

    return lambda i: float(train(data))


class _Schedule:
    """Noise levels of diffusion."""

    def __init__(self, torch, steps=50):
        self.steps = steps
        self.betas = torch.linspace(1e-4, 0.02, steps)
        self.alphas = 1.0 - self.betas
        self.bars = torch.cumprod(self.alphas, dim=0)


def _denoiser(torch):
    nn = torch.nn

    class Denoiser(nn.Module):
        def __init__(self, dim=16, width=64):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width))
            self.inp = nn.Linear(dim, width)
            self.blocks = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
            self.out = nn.Linear(width, dim)

        def embed(self, t):
            freqs = torch.exp(-math.log(10000) * torch.arange(8, dtype=torch.float32) / 8)
            args = t[:, None].float() * freqs[None]
            return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)

        def forward(self, x, t):
            h = self.inp(x) + self.time(self.embed(t))
            for i in range(len(self.blocks)):
                h = h + torch.relu(self.blocks[i](h))
            return self.out(h)

    return Denoiser()


@program
def diffusion(torch, trace):
    F = torch.nn.functional
    schedule, model = _Schedule(torch), _denoiser(torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.randn(32, 16)

    @trace
    def train(x0):
        t = torch.randint(0, schedule.steps, (x0.shape[0],))
        noise = torch.randn_like(x0)
        bar = schedule.bars[t].unsqueeze(1)
        loss = F.mse_loss(model(bar.sqrt() * x0 + (1 - bar).sqrt() * noise, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return lambda i: train(data)


@program
def diffusion_sampler(torch, trace):
    schedule, model = _Schedule(torch, 20), _denoiser(torch).eval()

    @trace
    @torch.no_grad()
    def denoise(x, t):
        eps = model(x, torch.full((x.shape[0],), t, dtype=torch.long))
        a, bar = schedule.alphas[t], schedule.bars[t]
        mean = (x - (1 - a) / torch.sqrt(1 - bar) * eps) / torch.sqrt(a)
        if t > 0:
            mean = mean + torch.sqrt(schedule.betas[t]) * torch.randn_like(x)
        return mean

    def step(i):
        x = torch.randn(8, 16)
        for t in reversed(range(schedule.steps)):
            x = denoise(x, t)
        return x.abs().mean().item()

    return step


@program
def autoencoder(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    encoder = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())
    decoder = nn.Sequential(
        nn.ConvTranspose2d(16, 8, 2, 2), nn.ReLU(), nn.ConvTranspose2d(8, 1, 2, 2), nn.Sigmoid()
    )
    parameters = list(encoder.parameters()) + list(decoder.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.9)
    x = torch.rand(16, 1, 16, 16)

    @trace
    def train(x):
        noisy = (x + 0.1 * torch.randn_like(x)).clamp(0, 1)
        loss = F.mse_loss(decoder(encoder(noisy)), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    return lambda i: train(x).item()
