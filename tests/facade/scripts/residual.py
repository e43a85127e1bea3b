"""Residual blocks; a checkpoint saved and loaded; transfer to another head."""

import os
import tempfile

import torch
import torch.nn as nn


def conv3x3(i, o, stride=1):
    return nn.Conv2d(i, o, kernel_size=3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, inplanes, planes, stride=1):
        super().__init__()
        self.conv1, self.bn1 = conv3x3(inplanes, planes, stride), nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = conv3x3(planes, planes), nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv3x3(3, 8), nn.BatchNorm2d(8), nn.ReLU(True))
        self.layer1, self.layer2 = BasicBlock(8, 8), BasicBlock(8, 16, stride=2)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(16, 2)

    def forward(self, x):
        x = self.layer2(self.layer1(self.stem(x)))
        return self.fc(self.avgpool(x).view(x.size(0), -1))


torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
x = torch.randn(32, 3, 8, 8)
y = (x.mean(dim=[1, 2, 3]) > 0).long()
net = ResNet()
optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[6, 9], gamma=0.1)
losses = []
for _epoch in range(8):
    loss = nn.CrossEntropyLoss()(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    losses.append(loss.item())

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "checkpoint.pth")
    torch.save({"epoch": 8, "model": net.state_dict(), "optimizer": optimizer.state_dict()}, path)
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
other = ResNet()
other.load_state_dict(checkpoint["model"])
torch.optim.SGD(other.parameters(), 0.05, momentum=0.9).load_state_dict(checkpoint["optimizer"])
net.eval()
other.eval()
with torch.no_grad():
    assert torch.equal(net(x), other(x))
headless = {k: v for k, v in checkpoint["model"].items() if not k.startswith("fc")}
missing = other.load_state_dict(headless, strict=False)
assert missing.missing_keys == ["fc.weight", "fc.bias"] and not missing.unexpected_keys
for p in other.parameters():
    p.requires_grad = False
other.fc = nn.Linear(other.fc.in_features, 5)
assert [n for n, p in other.named_parameters() if p.requires_grad] == ["fc.weight", "fc.bias"]
assert other(x).shape == (32, 5)
print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}")
