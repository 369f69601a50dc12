"""Two ranks: DistributedDataParallel or FSDP2; `fake`: FSDP2 as rank 0 of 8 without the others."""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn

WIDTH = 1024


def model_of(kind):
    model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(8))).cuda()
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard
    for layer in model:
        fully_shard(layer)
    return fully_shard(model)


def train(rank, kind, world):
    torch.cuda.set_device(rank)
    if kind == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    else:
        store = dist.FileStore(os.environ["MEETING"], world)
        dist.init_process_group("nccl", store=store, rank=rank, world_size=world)
    model = model_of(kind)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(3):
        model(torch.randn(32, WIDTH).cuda()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if kind != "fake":
        mine = torch.full((4,), rank, device="cuda")
        parts = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(parts, mine)
        dist.barrier()
    print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "fake":
        train(0, "fake", 8)
    else:
        multiprocessing.spawn(train, (sys.argv[1], 2), nprocs=2)
