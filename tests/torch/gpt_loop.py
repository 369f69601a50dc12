"""A small GPT with Adam that prints what an attribution of its memory must find, in bytes as the
allocator rounds them. argv: `keep` zeroes gradients in place, `drop` frees them; `leak` keeps a tensor of
every step."""

import json
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (8, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        scores = (q @ k.transpose(-1, -2) / k.shape[-1] ** 0.5).softmax(-1)
        return self.out((scores @ v).transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    def __init__(self, words=8000, width=256, layers=4, length=128):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, x):
        x = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x)

def size(tensors):
    return sum(-(-t.numel() * t.element_size() // 512) * 512 for t in tensors if t.is_cuda)


mode = sys.argv[1]
model = GPT().cuda()
optimizer = torch.optim.Adam(model.parameters())
kept = []
before = after = 0
for step in range(8 if mode == "leak" else 4):
    x = torch.randint(8000, (16, 128)).cuda()
    optimizer.zero_grad(set_to_none=mode != "keep")
    before = torch.cuda.memory_allocated()
    with torch.cuda.nvtx.range("forward"):
        loss = F.cross_entropy(model(x).flatten(0, 1), x.flatten())
    after = torch.cuda.memory_allocated()
    loss.backward()
    optimizer.step()
    if mode == "leak":
        kept.append(torch.zeros(1 << 18, device="cuda"))
print(json.dumps({
    "parameters": size(model.parameters()),
    "gradients": size(p.grad for p in model.parameters() if p.grad is not None),
    "optimizer_state": size(v for s in optimizer.state.values() for v in s.values()),
    "activations": after - before, "inputs": size([x]),
    "peak": torch.cuda.max_memory_allocated(),
}))
sys.stdout.flush()
os._exit(0)  # threads of PyTorch may outlive the interpreter
