"""The loop that recorder.py times: a small transformer, 60 steps. Prints CPU seconds of the steps.
usage: training_loop.py plain | recorded | memray | history-python | history-all"""

import sys
import time

import torch
from torch import nn

STEPS, WARM_UP = 60, 5


def main():
    if sys.argv[1].startswith("history-"):
        torch.cuda.memory._record_memory_history(stacks=sys.argv[1].split("-")[1])
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(256, 4, 512, batch_first=True), 6).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    start = 0.0
    for step in range(STEPS + WARM_UP):
        if step == WARM_UP:
            start = time.process_time()
        batch = torch.randn(8, 64, 256, device="cuda")
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    print(time.process_time() - start)


main()
