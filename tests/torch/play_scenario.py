"""Plays scenarios of tests/scenarios/scenarios.ini with the real PyTorch, each in a process of its
own: argv is a file with one JSON list [name, steps] a line. Prints "pid name" for each."""

import ctypes
import json
import os
import sys

import torch

MIB = 1 << 20


def weights(player, size):
    player.kept.append(player.take(size))


def losses(player, size):
    player.kept.append(player.take(size))


def cache(player, size):
    player.kept.append(player.take(size))


class Player:
    def __init__(self):
        self.named, self.kept, self.streams, self.hold = {}, [], {}, None

    def take(self, size, stream=None):
        with torch.cuda.stream(self.streams.setdefault(stream, torch.cuda.Stream()) if stream else None):
            return torch.empty(int(float(size) * MIB), dtype=torch.uint8, device="cuda")

    def run(self, steps):
        at = 0
        while at < len(steps):
            verb, *words = steps[at].split()
            if verb == "repeat":
                end = self.end_of_loop(steps, at)
                for _ in range(int(words[0])):
                    self.run(steps[at + 1:end])
                at = end
            else:
                try:
                    getattr(self, verb)(*words)
                except (torch.OutOfMemoryError, torch.AcceleratorError, RuntimeError) as error:
                    print("refused", str(error).split("\n")[0], file=sys.stderr)
            at += 1

    @staticmethod
    def end_of_loop(steps, at):
        depth = 0
        for place in range(at, len(steps)):
            depth += steps[place].startswith("repeat") - (steps[place] == "end")
            if depth == 0:
                return place
        raise SystemExit("repeat without end")

    def alloc(self, name, size, stream=None):
        self.named[name] = self.take(size, stream)

    def comb(self, count, size):
        blocks = [self.take(size) for _ in range(int(count))]
        self.kept += blocks[1::2]

    def keep(self, place, size):
        {"weights": weights, "losses": losses, "cache": cache}[place](self, size)

    def free(self, name):
        self.named.pop(name, None)

    def record(self, name, stream):
        self.named[name].record_stream(self.streams.setdefault(stream, torch.cuda.Stream()))

    def train(self, what):
        model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(16)]).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        rows = 40000 if what == "big" else 512
        while True:
            output = model(torch.randn(rows, 1024).cuda())
            loss = output.square().mean()
            if what == "eval":
                self.kept.append(output)
                continue
            if what == "graph":
                self.kept.append(loss)
            optimizer.zero_grad()
            loss.backward(retain_graph=what == "graph")
            optimizer.step()

    def fraction(self, share):
        torch.cuda.set_per_process_memory_fraction(float(share))

    def outside(self, size):
        runtime = next(path for path in open("/proc/self/maps").read().split() if "libcudart.so" in path)
        address = ctypes.c_void_p()
        ctypes.CDLL(runtime).cudaMalloc(ctypes.byref(address), ctypes.c_size_t(int(size) * MIB))

    def pinned(self, size):
        self.kept.append(torch.empty(int(size) * MIB, dtype=torch.uint8, pin_memory=True))

    def pool(self, what):
        if what == "begin":
            self.kept.append(torch.cuda.MemPool())
            self.hold = torch.cuda.use_mem_pool(self.kept[-1])
            self.hold.__enter__()
        else:
            self.hold.__exit__(None, None, None)

    def empty_cache(self):
        torch.cuda.empty_cache()

    def other(self, size):
        ready, told = os.pipe()
        held, hold = os.pipe()
        if os.fork() == 0:
            os.close(hold)
            kept = torch.empty(int(size) * MIB, dtype=torch.uint8, device="cuda")
            os.write(told, b"y")
            os.read(held, 1)
            del kept
            os._exit(0)
        os.close(held)
        os.close(told)
        if os.read(ready, 1) != b"y":
            raise SystemExit("the other process got no memory")


def main():
    for line in open(sys.argv[1]):
        name, steps = json.loads(line)
        child = os.fork()
        if child == 0:
            Player().run([step.strip() for step in steps.split(";") if step.strip()])
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            raise SystemExit(f"{name}: status {status}")
        print(child, name, flush=True)


main()
