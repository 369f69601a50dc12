"""ResNet-50, SGD with momentum; --amp: autocast with GradScaler; --channels-last."""
import argparse

import torch
import torch.nn.functional as F
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--channels-last", action="store_true")
options = parser.parse_args()

form = torch.channels_last if options.channels_last else torch.contiguous_format
model = torchvision.models.resnet50().cuda().to(memory_format=form)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cuda", enabled=options.amp)
for step in range(4):
    images = torch.randn(options.batch, 3, 224, 224).cuda().to(memory_format=form)
    labels = torch.randint(0, 1000, (options.batch,)).cuda()
    with torch.autocast("cuda", dtype=torch.float16, enabled=options.amp):
        loss = F.cross_entropy(model(images), labels)
    assert torch.isfinite(loss)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(f"step {step}: loss {loss.item():.3f}, scale {scaler.get_scale()}")
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
