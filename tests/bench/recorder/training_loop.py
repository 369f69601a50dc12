"""The loop that recorder.py times: a small transformer, 60 steps, each waits for its end. Prints device
operations per step, the median step in wall-clock seconds, CPU seconds of all steps.
usage: training_loop.py plain | recorded | memray | history-python | history-all"""

import os
import statistics
import sys
import time

import torch
from torch import nn

STEPS, WARM_UP = 60, 5


def operations(step):
    """The simulated device counts its time in operations, a thousandth of a millisecond each."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    step()
    end.record()
    torch.cuda.synchronize()
    return round(begin.elapsed_time(end) * 1000)


def main():
    if sys.argv[1].startswith("history-"):
        torch.cuda.memory._record_memory_history(stacks=sys.argv[1].split("-")[1])
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(256, 4, 512, batch_first=True), 6).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step():
        batch = torch.randn(8, 64, 256, device="cuda")
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(WARM_UP - 1):
        step()
    count = operations(step)
    walls, cpu = [], time.process_time()
    for _ in range(STEPS):
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        walls.append(time.perf_counter() - begin)
    print(count, statistics.median(walls), time.process_time() - cpu, flush=True)
    if sys.argv[1] != "memray":
        os._exit(0)  # a thread of autograd may abort a process that ends after backward()


main()
