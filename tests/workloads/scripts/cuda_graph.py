"""A training step captured into a CUDA graph and replayed."""
import torch
from torch import nn

model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
inputs, targets = torch.randn(64, 512).cuda(), torch.randn(64, 512).cuda()


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = step()
for _ in range(20):
    inputs.copy_(torch.randn(64, 512))
    graph.replay()
torch.cuda.synchronize()
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
