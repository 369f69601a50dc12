"""Ten steps of a small U-Net: skip connections keep large activations alive all the way, SGD."""
import torch
from torch import nn


def block(channels_in, channels_out):
    return nn.Sequential(nn.Conv2d(channels_in, channels_out, 3, padding=1),
                         nn.BatchNorm2d(channels_out), nn.ReLU(),
                         nn.Conv2d(channels_out, channels_out, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, widths=(24, 48, 96, 192)):
        super().__init__()
        self.down = nn.ModuleList(block(a, b) for a, b in zip((3, *widths), widths))
        self.up = nn.ModuleList(block(a + b, a) for a, b in zip(widths[:-1], widths[1:]))
        self.last = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x):
        kept = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = kept.pop()
        for layer in reversed(self.up):
            x = nn.functional.interpolate(x, scale_factor=2)
            x = layer(torch.cat([x, kept.pop()], 1))
        return self.last(x)


model = UNet().cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
for step in range(10):
    optimizer.zero_grad()
    model(torch.randn(8, 3, 160, 160).cuda()).square().mean().backward()
    optimizer.step()
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
