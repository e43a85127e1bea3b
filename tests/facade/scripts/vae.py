"""A variational autoencoder: the reparametrisation trick, two losses, samples."""

import torch
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F

torch.manual_seed(1)
base = (torch.rand(8, 36) > 0.5).float()
data = base[torch.randint(0, 8, (256,))]
data = torch.where(torch.rand_like(data) < 0.05, 1 - data, data)
dataset = torch.utils.data.TensorDataset(data)
loader = torch.utils.data.DataLoader(dataset, batch_size=64, shuffle=True)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(36, 32), nn.Linear(32, 4), nn.Linear(32, 4)
        self.fc3, self.fc4 = nn.Linear(4, 32), nn.Linear(32, 36)

    def encode(self, x):
        h = F.relu(self.fc1(x))
        return self.fc21(h), self.fc22(h)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return eps.mul(std).add_(mu)

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 36))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    bce = F.binary_cross_entropy(recon_x, x.view(-1, 36), reduction="sum")
    return bce - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


model = VAE()
optimizer = optim.Adam(model.parameters(), lr=5e-3)
losses = []
for _epoch in range(14):
    total = 0
    for (x,) in loader:
        optimizer.zero_grad()
        loss = loss_function(model(x)[0], x, *model.encode(x))
        loss.backward()
        total += loss.item()
        optimizer.step()
    losses.append(total / len(loader.dataset))
with torch.no_grad():
    sample = model.decode(torch.randn(4, 4)).cpu()
    assert 0 <= sample.min() and sample.max() <= 1 and sample.numpy().dtype.name == "float32"
print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}")
