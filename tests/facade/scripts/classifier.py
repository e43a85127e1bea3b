"""A perceptron on rings of points: a dataset of one's own, loaders, an evaluation loop."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.utils.data import DataLoader, Dataset, random_split

torch.manual_seed(42)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Rings(Dataset):
    def __init__(self, n):
        angle = torch.rand(n) * 2 * torch.pi
        self.label = torch.randint(0, 3, (n,))
        radius = (self.label + 1).unsqueeze(1).float()
        self.points = torch.stack([torch.cos(angle), torch.sin(angle)], 1) * radius
        self.points += 0.1 * torch.randn_like(self.points)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return self.points[i], self.label[i]


class Net(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(2, hidden), nn.Linear(hidden, hidden)
        self.out, self.dropout = nn.Linear(hidden, 3), nn.Dropout(p=0.1)

    def forward(self, x):
        x = self.dropout(F.relu(self.fc2(F.relu(self.fc1(x)))))
        return F.log_softmax(self.out(x), dim=1)


train, test = random_split(Rings(600), [500, 100], generator=torch.Generator().manual_seed(1))
train_loader = DataLoader(train, batch_size=32, shuffle=True, drop_last=True)
test_loader = DataLoader(test, batch_size=50)
model = Net().to(device)
print(model)
optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
losses = []
for _epoch in range(6):
    model.train()
    running = 0.0
    for data, target in train_loader:
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad(set_to_none=True)
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        running += loss.item()
    losses.append(running / len(train_loader))
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            pred = model(data).argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
assert correct / len(test) > 0.9
print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}")
