"""torch.profiler around a few steps."""
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

model = nn.Linear(512, 512).cuda()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as profiler:
    for step in range(3):
        model(torch.randn(64, 512).cuda()).sum().backward()
assert len(profiler.key_averages()) > 10
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
