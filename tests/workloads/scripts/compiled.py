"""torch.compile in the mode that the argument names."""
import sys

import torch
from torch import nn

model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
compiled = torch.compile(model, mode=sys.argv[1])
for step in range(4):
    compiled(torch.randn(32, 256).cuda()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
