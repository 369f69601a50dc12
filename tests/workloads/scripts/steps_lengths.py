"""Twelve rounds of a transformer over batches of four lengths in turn, gradient clipping, AdamW."""
import torch
from torch import nn

layer = nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True)
model = nn.TransformerEncoder(layer, 6).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for step in range(12):
    for length in (120, 512, 328, 200):
        model(torch.randn(16, length, 384).cuda()).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
