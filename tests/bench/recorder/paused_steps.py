"""The loop of training_loop.py, recorded, its recording paused and resumed in turn: the same process, the
same moment, so a busy machine disturbs both alike. Prints milliseconds of CPU time of the median step
while paused, and how much longer the median recorded one is.
usage: paused_steps.py FRAGSCOPE ROUNDS"""

import os
import statistics
import subprocess
import sys
import time

import torch
from torch import nn

WARM_UP, STEPS = 10, 8


def main():
    fragscope, rounds = sys.argv[1], int(sys.argv[2])
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 512, batch_first=True), 6).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step():
        begin = time.process_time()
        model(torch.randn(8, 64, 256, device="cuda")).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.process_time() - begin

    for _ in range(WARM_UP):
        step()
    spent = {"stop": [], "start": []}
    for _ in range(rounds):
        for word, seconds in spent.items():
            subprocess.run([fragscope, "ctl", word, str(os.getpid())], check=True, stdout=subprocess.DEVNULL)
            step()
            seconds += [step() for _ in range(STEPS)]
    paused, recorded = (statistics.median(seconds) * 1000 for seconds in spent.values())
    print(paused, recorded - paused, flush=True)
    os._exit(0)  # a thread of autograd may abort a process that ends after backward()


main()
