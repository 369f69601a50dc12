"""Fused, foreach and plain optimizers over the same layers."""
import torch
from torch import nn

model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6))).cuda()
inputs = torch.randn(64, 1024).cuda()
for make in (lambda p: torch.optim.AdamW(p, fused=True), lambda p: torch.optim.AdamW(p, foreach=True),
             lambda p: torch.optim.Adam(p, foreach=False), lambda p: torch.optim.SGD(p, 0.1, fused=True),
             lambda p: torch.optim.Adafactor(p), lambda p: torch.optim.RMSprop(p)):
    optimizer = make(model.parameters())
    for step in range(2):
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    before = torch.cuda.memory_allocated()
    del optimizer
    print(before - torch.cuda.memory_allocated())
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
