"""Reads a process's raw log (src/log/log_layout.h) for tests, independently of the C++ reader."""

import pathlib
import struct

HEADER_BYTES = 8192
SLOT_BYTES = 96
MAX_APIS = 512
UNKNOWN = 2**64 - 1
PENDING = -(2**31)
KINDS = {
    int(line.split("(")[1].split(",")[1]): line.split("(")[1].split(",")[0]
    for line in (pathlib.Path(__file__).parents[2] / "src/event/event_kinds.def").read_text().splitlines()
    if line.startswith("EVENT_KIND(")
}
BLOB_KINDS = {1: "stack", 2: "module", 3: "text", 4: "api_name", 5: "property",
              6: "python_frame"}


class Log:
    """events: list of dicts in log order; properties, api_names, texts, stacks, modules: dicts."""

    def __init__(self, path):
        data = pathlib.Path(path).read_bytes()
        assert data[:8] == b"FSLOG\r\n\0", "not a log"
        self.pid, self.capacity = struct.unpack_from("<4xIQ", data, 16)
        self.start_ticks, self.realtime_ns, self.monotonic_ns = struct.unpack_from("<3Q", data, 40)
        self.program = data[64:128].split(b"\0")[0].decode()
        self.write_pos = struct.unpack_from("<Q", data, 192)[0]
        # allocated_slots, dropped_events, grow_errno, finished share the third cache line
        _, self.dropped, self.grow_errno, self.finished = struct.unpack_from("<QQII", data, 320)
        calls = struct.unpack_from(f"<{MAX_APIS}Q", data, 384)
        self.events, self.torn = [], 0
        blobs = {kind: {} for kind in BLOB_KINDS.values()}
        for position in range(self.write_pos):
            self._slot(data, position, blobs)
        joined = {
            kind: {i: b"".join(p for _, p in sorted(parts)) for i, parts in table.items()}
            for kind, table in blobs.items()
        }
        self.api_names = {i: b.decode() for i, b in joined["api_name"].items()}
        self.properties = {}
        for _, blob in sorted(joined["property"].items()):
            key, value = blob.decode().split("=", 1)
            self.properties[key] = value
        self.texts = {i: b.decode() for i, b in joined["text"].items()}
        self.modules = [b.decode() for _, b in sorted(joined["module"].items())]
        self.stacks = {i: struct.unpack(f"<{len(b) // 8}Q", b) for i, b in joined["stack"].items()}
        self.api_calls = {self.api_names[i]: n for i, n in enumerate(calls) if n}
        for event in self.events:
            event["api"] = self.api_names.get(event["api"])

    def _slot(self, data, position, blobs):
        at = HEADER_BYTES + position % self.capacity * SLOT_BYTES
        commit = struct.unpack_from("<Q", data, at)[0]
        if commit >> 8 != position + 1:
            self.torn += 1
            return
        if commit >> 1 & 0x7F == 1:
            f = struct.unpack_from("<QIHHii6QIIII", data, at + 8)
            names = (
                "time_ns tid kind api device result stream address size requested aux aux2 stack flags text"
            ).split()
            event = dict(zip(names, f))
            event["kind"] = KINDS[event["kind"]]
            event["final"] = bool(commit & 1)
            self.events.append(event)
            return
        kind, _, part, _parts, used, number = struct.unpack_from("<BBHHHI", data, at + 8)
        blobs[BLOB_KINDS[kind]].setdefault(number, []).append(
            (part, data[at + 24 : at + 24 + used])
        )

    def of(self, *kinds):
        return [e for e in self.events if e["kind"] in kinds]


def logs_in(directory):
    """All published logs below a directory, oldest first."""
    return [Log(p) for p in sorted(pathlib.Path(directory).rglob("*.fslog"))]
