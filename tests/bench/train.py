"""Training loops whose traces the replay benchmarks use: train.py transformer|resnet STEPS.

Plain PyTorch, no options of the allocator: batches of varying length or size, AdamW, on `cuda`.
"""

import sys

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5).softmax(-1)
        x = x + self.proj((scores @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Residual(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(),
                                  nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer))
        self.skip = nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.skip(x))


def transformer() -> nn.Module:
    return nn.Sequential(nn.Embedding(8192, 512), *[Attention(512, 8) for _ in range(12)], nn.Linear(512, 8192))


def resnet() -> nn.Module:
    widths = [64, 64, 128, 256, 512]
    stages = [Residual(inner, outer, 2) for inner, outer in zip(widths, widths[1:])]
    return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def batch(name: str, step: int) -> torch.Tensor:
    if name == "transformer":
        return torch.zeros(8, 128 + 64 * (step * 5 % 7), dtype=torch.long)
    return torch.zeros(16 + 8 * (step * 3 % 5), 3, 224, 224)


def main() -> None:
    name, steps = sys.argv[1], int(sys.argv[2])
    model = {"transformer": transformer, "resnet": resnet}[name]().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(steps):
        output = model(batch(name, step).cuda())
        target = torch.zeros(output.shape[:-1], dtype=torch.long).cuda()
        nn.functional.cross_entropy(output.flatten(0, -2), target.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
