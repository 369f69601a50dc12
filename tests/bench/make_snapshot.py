#!/usr/bin/env python3
"""Writes a snapshot pickle of any size, as Python's pickler would (protocol 4): a training loop whose
blocks come and go, each with a stack.

usage: make_snapshot.py BYTES OUT [--no-frames]
"""

import random
import struct
import sys

MIB = 1 << 20
SIZES = [512, 3000, 70_000, 900_000, 2 * MIB, 5 * MIB, 11 * MIB]


class Pickler:
    """The opcodes that a snapshot needs; texts and frames once, then by the memo."""

    def __init__(self, file):
        self.file, self.memos, self.known, self.written = file, 0, {}, 0
        self.write(b"\x80\x04")

    def write(self, data):
        self.file.write(data)
        self.written += len(data)

    def memoize(self):
        self.write(b"\x94")
        self.memos += 1
        return self.memos - 1

    def get(self, index):
        self.write(b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index))

    def text(self, value):
        if value in self.known:
            return self.get(self.known[value])
        data = value.encode()
        self.write(b"\x8c" + bytes([len(data)]) + data)
        self.known[value] = self.memoize()

    def number(self, value):
        if 0 <= value < 256:
            self.write(b"K" + bytes([value]))
        elif 0 <= value < 65536:
            self.write(b"M" + struct.pack("<H", value))
        elif -(1 << 31) <= value < 1 << 31:
            self.write(b"J" + struct.pack("<i", value))
        else:
            length = value.bit_length() // 8 + 1
            self.write(b"\x8a" + bytes([length]) + value.to_bytes(length, "little", signed=True))

    def frame(self, line):
        key = ("frame", line)
        if key in self.known:
            return self.get(self.known[key])
        self.write(b"}")
        self.known[key] = self.memoize()
        self.write(b"(")
        for name, value in (("name", f"layer_{line}"), ("filename", "project/model.py")):
            self.text(name)
            self.text(value)
        self.text("line")
        self.number(line)
        self.write(b"u")

    def frames(self, lines):
        self.write(b"]")
        self.memoize()
        if lines:
            self.write(b"(")
            for line in lines:
                self.frame(line)
            self.write(b"e")

    def entry(self, action, address, size, time_us, lines):
        self.write(b"}")
        self.memoize()
        self.write(b"(")
        self.text("action")
        self.text(action)
        for name, value in (("addr", address), ("size", size), ("stream", 0), ("time_us", time_us)):
            self.text(name)
            self.number(value)
        self.text("compile_context")
        self.text("N/A")
        if lines is not None:
            self.text("frames")
            self.frames(lines)
        self.write(b"u")


def bump(live, size):
    """An address of a block that is not live: each size has a range of its own."""
    at = live.setdefault(size, {"next": 0x7F0000000000 + SIZES.index(size) * (1 << 40), "free": []})
    if at["free"]:
        return at["free"].pop()
    at["next"] += (size + 511) // 512 * 512
    return at["next"]


def main(size, path, with_frames):
    random.seed(1)
    stacks = [[random.randrange(2000) for _ in range(random.randrange(10, 45))] for _ in range(500)]
    with open(path, "wb") as file:
        out = Pickler(file)
        out.write(b"}")
        out.memoize()
        out.write(b"(")
        out.text("segments")
        out.write(b"]")
        out.memoize()
        out.text("device_traces")
        out.write(b"]")
        out.memoize()
        out.write(b"(]")
        out.memoize()
        ranges, live, time_us, entries = {}, [], 1_700_000_000_000_000, 0
        while out.written < size:
            out.write(b"(")
            for _ in range(1000):
                time_us += 3
                entries += 1
                lines = random.choice(stacks) if with_frames else None
                if len(live) > 300:
                    address, bytes_ = live.pop(random.randrange(len(live)))
                    out.entry("free_requested", address, bytes_, time_us, lines)
                    out.entry("free_completed", address, bytes_, time_us, lines)
                    ranges[bytes_]["free"].append(address)
                else:
                    bytes_ = random.choice(SIZES)
                    address = bump(ranges, bytes_)
                    live.append((address, bytes_))
                    out.entry("alloc", address, bytes_, time_us, lines)
            out.write(b"e")
        out.write(b"eu.")
    print(f"{path}: {out.written} bytes, {entries} entries")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(int(sys.argv[1]), sys.argv[2], "--no-frames" not in sys.argv)
