"""Ten steps of a multilayer perceptron whose layers differ in width, AdamW."""
import torch
from torch import nn

layers = []
for i in range(8):
    layers += [nn.Linear(512 + 160 * i, 2048), nn.GELU(), nn.Linear(2048, 512 + 160 * (i + 1)),
               nn.Dropout(0.1)]
model = nn.Sequential(*layers).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10):
    optimizer.zero_grad(set_to_none=True)
    model(torch.randn(8192, 512).cuda()).square().mean().backward()
    optimizer.step()
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
