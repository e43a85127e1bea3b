"""Programs over images: classifiers, segmentation, detection, super-resolution, self-supervision."""

import math
import random

from . import program


@program
def convnet(torch, trace):
    nn, F = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3)
            self.drop, self.fc1, self.fc2 = nn.Dropout(0.25), nn.Linear(16 * 36, 32), nn.Linear(32, 10)

        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
            x = F.relu(self.fc1(self.drop(torch.flatten(x, 1))))
            return F.log_softmax(self.fc2(x), dim=1)

    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    x, y = torch.randn(16, 1, 16, 16), torch.randint(0, 10, (16,))
    stats = {"correct": 0, "seen": 0}

    @trace
    def train(x, y):
        model.train()
        optimizer.zero_grad()
        output = model(x)
        loss = F.nll_loss(output, y)
        loss.backward()
        optimizer.step()
        stats["correct"] += (output.argmax(1) == y).sum().item()
        stats["seen"] += len(y)
        return loss.item()

    @trace
    def test(x, y):
        model.eval()
        with torch.no_grad():
            return F.nll_loss(model(x), y, reduction="sum").item()

    return lambda i: train(x, y) + test(x, y)


@program
def resnet(torch, trace):
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, cin, cout, stride=1):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout)
            self.conv2, self.bn2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout)
            self.shortcut = nn.Sequential()
            if stride != 1 or cin != cout:
                conv = nn.Conv2d(cin, cout, 1, stride, bias=False)
                self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(cout))

        def forward(self, x):
            out = F.relu(self.bn1(self.conv1(x)))
            return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))

    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1), Block(8, 8), Block(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=50)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    x, y = torch.randn(16, 3, 16, 16), torch.randint(0, 10, (16,))

    @trace
    def train(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        return loss

    return lambda i: train(x, y).item()


@program
def vit_einops(torch, trace):
    from einops import rearrange, repeat

    nn = torch.nn

    class Attention(nn.Module):
        def __init__(self, dim, heads):
            super().__init__()
            self.heads, self.scale = heads, (dim // heads) ** -0.5
            self.norm, self.qkv, self.out = nn.LayerNorm(dim), nn.Linear(dim, dim * 3), nn.Linear(dim, dim)

        def forward(self, x):
            qkv = self.qkv(self.norm(x)).chunk(3, dim=-1)
            q, k, v = map(lambda t: rearrange(t, "b n (h d) -> b h n d", h=self.heads), qkv)
            attn = (torch.matmul(q, k.transpose(-1, -2)) * self.scale).softmax(dim=-1)
            return self.out(rearrange(torch.matmul(attn, v), "b h n d -> b n (h d)"))

    class ViT(nn.Module):
        def __init__(self, dim=32):
            super().__init__()
            self.embed, self.cls = nn.Linear(48, dim), nn.Parameter(torch.randn(1, 1, dim))
            self.pos = nn.Parameter(torch.randn(1, 17, dim))
            self.layers = nn.ModuleList([])
            for _ in range(2):
                self.layers.append(
                    nn.ModuleList(
                        [
                            Attention(dim, 4),
                            nn.Sequential(
                                nn.LayerNorm(dim), nn.Linear(dim, 64), nn.GELU(), nn.Linear(64, dim)
                            ),
                        ]
                    )
                )
            self.head = nn.Linear(dim, 10)

        def forward(self, img):
            x = self.embed(rearrange(img, "b c (h p1) (w p2) -> b (h w) (p1 p2 c)", p1=4, p2=4))
            x = torch.cat((repeat(self.cls, "1 1 d -> b 1 d", b=x.shape[0]), x), dim=1) + self.pos
            for attn, ff in self.layers:
                x = attn(x) + x
                x = ff(x) + x
            return self.head(x[:, 0])

    model = ViT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,))

    @trace
    def train(x, y):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return lambda i: train(x, y).item()


@program
def unet(torch, trace):
    nn, F = torch.nn, torch.nn.functional

    def double(cin, cout):
        return nn.Sequential(
            nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        )  # fmt: skip

    class UNet(nn.Module):
        def __init__(self, widths=(8, 16, 32)):
            super().__init__()
            self.downs = nn.ModuleList([double(a, b) for a, b in zip((1, *widths[:-1]), widths)])
            self.ups, self.merges = nn.ModuleList(), nn.ModuleList()
            for high, low in zip(widths[::-1], widths[-2::-1]):
                self.ups.append(nn.ConvTranspose2d(high, low, 2, 2))
                self.merges.append(double(2 * low, low))
            self.out = nn.Conv2d(widths[0], 1, 1)

        def forward(self, x):
            skips = []
            for i, down in enumerate(self.downs):
                x = down(x if i == 0 else F.max_pool2d(x, 2))
                skips.append(x)
            for up, merge, skip in zip(self.ups, self.merges, reversed(skips[:-1])):
                x = merge(torch.cat([skip, up(x)], dim=1))
            return self.out(x)

    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(4, 1, 16, 16)
    mask = (torch.rand(4, 1, 16, 16) > 0.5).float()

    def dice(logits, target, eps=1.0):
        p = torch.sigmoid(logits)
        both = (p * target).sum((1, 2, 3))
        return 1 - ((2 * both + eps) / (p.sum((1, 2, 3)) + target.sum((1, 2, 3)) + eps)).mean()

    @trace
    def train(x, mask):
        logits = model(x)
        loss = F.binary_cross_entropy_with_logits(logits, mask) + dice(logits, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return lambda i: train(x, mask).item()


@program
def super_resolution(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    net = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 4, 3, padding=1), nn.PixelShuffle(2),
    )  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    high = torch.rand(4, 1, 16, 16)
    low = F.interpolate(high, scale_factor=0.5, mode="bilinear", align_corners=False)

    @trace
    def train(low, high):
        optimizer.zero_grad()
        mse = F.mse_loss(net(low), high)
        mse.backward()
        optimizer.step()
        return 10 * math.log10(1 / mse.item())

    return lambda i: train(low, high)


@program
def detection(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())
    scores, boxes = nn.Conv2d(16, 3, 1), nn.Conv2d(16, 12, 1)
    modules = nn.ModuleDict({"backbone": backbone, "scores": scores, "boxes": boxes})
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(4, 3, 16, 16)
    labels = (torch.rand(4, 48) > 0.8).float()
    targets = torch.randn(4, 48, 4)

    def focal(logits, target, alpha=0.25, gamma=2.0):
        p = torch.sigmoid(logits)
        ce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        pt = p * target + (1 - p) * (1 - target)
        return ((alpha * target + (1 - alpha) * (1 - target)) * ce * (1 - pt) ** gamma).sum()

    @trace
    def train(x):
        features = modules["backbone"](x)
        s = modules["scores"](features).permute(0, 2, 3, 1).reshape(4, -1)
        b = modules["boxes"](features).permute(0, 2, 3, 1).reshape(4, -1, 4)
        positive = labels > 0
        box_loss = F.smooth_l1_loss(b, targets, reduction="none").sum(-1)
        loss = focal(s, labels) / labels.sum() + (box_loss * positive).sum() / positive.sum().clamp(min=1)
        losses = {"loss": loss, "boxes": box_loss.mean()}
        optimizer.zero_grad()
        losses["loss"].backward()
        optimizer.step()
        return {k: v.item() for k, v in losses.items()}

    return lambda i: train(x)["loss"]


@program
def style_transfer(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1)).eval()
    for p in features.parameters():
        p.requires_grad_(False)

    def gram(x):
        b, c, h, w = x.size()
        f = x.view(b * c, h * w)
        return torch.mm(f, f.t()).div(b * c * h * w)

    content, style = torch.rand(1, 3, 16, 16), torch.rand(1, 3, 16, 16)
    want_content, want_style = features(content).detach(), gram(features(style)).detach()
    image = content.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([image], lr=0.02)

    @trace
    def train():
        with torch.no_grad():
            image.clamp_(0, 1)
        optimizer.zero_grad()
        found = features(image)
        loss = 1e4 * F.mse_loss(gram(found), want_style) + F.mse_loss(found, want_content)
        loss.backward()
        optimizer.step()
        return loss

    return lambda i: train().item()


@program
def simclr(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    encoder = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
    projector = nn.Sequential(nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 16))
    optimizer = torch.optim.Adam([*encoder.parameters(), *projector.parameters()], lr=1e-3)
    x = torch.rand(16, 3, 16, 16)

    def augment(x):
        x = torch.flip(x, [3])
        return x + 0.1 * torch.randn_like(x)

    def nt_xent(z1, z2, temperature=0.5):
        z = F.normalize(torch.cat([z1, z2]), dim=1)
        n = z1.size(0)
        sim = z @ z.t() / temperature
        sim.masked_fill_(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
        labels = torch.cat([torch.arange(n) + n, torch.arange(n)])
        return F.cross_entropy(sim, labels)

    @trace
    def train(x):
        loss = nt_xent(projector(encoder(augment(x))), projector(encoder(augment(x))))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return lambda i: train(x)


@program
def byol(torch, trace):
    import copy

    nn, F = torch.nn, torch.nn.functional
    online = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16))
    predictor = nn.Linear(16, 16)
    teacher = copy.deepcopy(online)
    for p in teacher.parameters():
        p.requires_grad = False
    optimizer = torch.optim.Adam([*online.parameters(), *predictor.parameters()], lr=1e-3)
    x = torch.randn(32, 32)

    @trace
    def train(x, step):
        one, two = x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)
        with torch.no_grad():
            target = teacher(two)
        loss = 2 - 2 * F.cosine_similarity(predictor(online(one)), target, dim=-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tau = 1 - 0.01 * (math.cos(math.pi * step / 100) + 1) / 2
        with torch.no_grad():
            for t, o in zip(teacher.parameters(), online.parameters()):
                t.data = tau * t.data + (1 - tau) * o.data
        return loss

    return lambda i: train(x, i).item()


@program
def siamese(torch, trace):
    nn = torch.nn

    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
            self.fc = nn.Linear(8 * 49, 16)

        def once(self, x):
            return self.fc(self.net(x))

        def forward(self, a, p, n):
            return self.once(a), self.once(p), self.once(n)

    model, criterion = Siamese(), nn.TripletMarginLoss(margin=1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    triple = [torch.randn(8, 1, 16, 16) for _ in range(3)]

    @trace
    def train(batch):
        optimizer.zero_grad()
        loss = criterion(*model(*batch))
        loss.backward()
        optimizer.step()
        return loss

    return lambda i: train(triple).item()


@program
def mixup(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(32, 1, 8, 8), torch.randint(0, 10, (32,))
    generator = random.Random(0)

    @trace
    def train(x, y, lam):
        index = torch.randperm(x.size(0))
        out = model(lam * x + (1 - lam) * x[index])
        loss = lam * F.cross_entropy(out, y) + (1 - lam) * F.cross_entropy(out, y[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return lambda i: train(x, y, generator.betavariate(0.4, 0.4)).item()


@program
def nerf(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    net = nn.Sequential(nn.Linear(3 * 9, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
    origins, directions, colors = torch.randn(32, 3), torch.randn(32, 3), torch.rand(32, 3)

    def encode(x, freqs=4):
        parts = [x]
        for i in range(freqs):
            for fn in (torch.sin, torch.cos):
                parts.append(fn(2.0**i * math.pi * x))
        return torch.cat(parts, -1)

    @trace
    def train(o, d, rgb):
        t = torch.linspace(0.1, 2.0, 16)
        points = o[:, None] + d[:, None] * t[None, :, None]
        raw = net(encode(points))
        sigma, color = F.relu(raw[..., 3]), torch.sigmoid(raw[..., :3])
        delta = torch.cat([t[1:] - t[:-1], torch.tensor([1e10])])
        alpha = 1.0 - torch.exp(-sigma * delta)
        trans = torch.cumprod(torch.cat([torch.ones(32, 1), 1.0 - alpha + 1e-10], -1), -1)[:, :-1]
        out = ((alpha * trans)[..., None] * color).sum(-2)
        loss = ((out - rgb) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return lambda i: train(origins, directions, colors).item()
