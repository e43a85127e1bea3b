"""Convolutions, batch norm, dropout, initialisation by module, a schedule, label smoothing."""

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR

torch.manual_seed(0)
labels = torch.arange(128) % 4
images = torch.zeros(128, 1, 12, 12)
for i, label in enumerate(labels):
    if label == 0:
        images[i, :, 4:6, :] = 1
    elif label == 1:
        images[i, :, :, 4:6] = 1
    elif label == 2:
        images[i, 0].fill_diagonal_(1.0)
    else:
        images[i, :, ::3, ::3] = 1
images += torch.randn(images.size()) * 0.3
images = (images - images.mean()) / images.std()

model = nn.Sequential(
    nn.Conv2d(1, 8, kernel_size=3, padding=1, bias=False),
    nn.BatchNorm2d(8),
    nn.ReLU(inplace=True),
    nn.MaxPool2d(2),
    nn.Conv2d(8, 16, 3, padding="same"),
    nn.BatchNorm2d(16),
    nn.LeakyReLU(0.1, inplace=True),
    nn.AdaptiveAvgPool2d((2, 2)),
    nn.Flatten(),
    nn.Dropout(0.2),
    nn.Linear(64, 4),
)
for m in model.modules():
    if isinstance(m, nn.Conv2d):
        nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(m, nn.BatchNorm2d):
        nn.init.constant_(m.weight, 1)
        nn.init.constant_(m.bias, 0)
criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.98))
scheduler = StepLR(optimizer, step_size=2, gamma=0.5)
losses = []
for _epoch in range(6):
    model.train()
    total = 0.0
    for chunk in torch.randperm(images.size(0)).split(32):
        optimizer.zero_grad()
        loss = criterion(model(images[chunk]), labels[chunk])
        loss.backward()
        optimizer.step()
        total += loss.item()
    scheduler.step()
    losses.append(total / 4)
assert scheduler.get_last_lr() == [optimizer.param_groups[0]["lr"]] == [1e-2 * 0.5**3]
model.eval()
with torch.inference_mode():
    _, predicted = torch.max(model(images), 1)
    assert (predicted == labels).float().mean() > 0.9
assert model[1].num_batches_tracked == 24
print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}")
