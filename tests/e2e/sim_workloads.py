"""Workloads that stock PyTorch runs on the simulated GPU (24 GiB, 2 devices, no context bytes); one
process each, by name. Every one asserts what must be exact: PyTorch's books against the device's."""

import itertools
import json
import os
import sys
import tempfile

import torch
from torch import nn

DEVICE = "cuda"


def device_agrees():
    """What the device has given away is what PyTorch's allocator has reserved, to the byte."""
    torch.cuda.synchronize()
    for device in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(device)
        assert total == 24 * 2**30
        assert total - free == torch.cuda.memory_reserved(device), (total - free, device)


def profiled_step(step):
    """Events of one step's trace by category, the device time of its kernels by operator, and how
    long the device itself was busy, in its microseconds."""
    cuda = torch.profiler.ProfilerActivity.CUDA
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, cuda],
                                profile_memory=True) as profiler:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        profiler.export_chrome_trace(f"{folder}/trace.json")
        with open(f"{folder}/trace.json") as file:
            events = json.load(file)["traceEvents"]
    kinds = {kind: [e for e in events if e.get("cat") == kind and e["ph"] in "Xs"]
             for kind in ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "ac2g")}
    times = {row.key: row.device_time_total for row in profiler.key_averages()}
    # The record of an event counts for a microsecond too.
    return kinds, times, round(start.elapsed_time(end) * 1000) - 1


def profile():
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    host = torch.randn(32, 64).pin_memory()

    def step():
        loss = model(host.to(DEVICE, non_blocking=True)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss.item()

    step()
    keys = dict(pair.split("=", 1) for pair in os.environ["FRAGSCOPE_SIM"].split(";"))
    kernel_us = max(1, int(keys["kernel_us"]))
    seen = []
    for _ in range(2):
        kinds, times, busy_us = profiled_step(step)
        kernels, copies, fills = (kinds[k] for k in ("kernel", "gpu_memcpy", "gpu_memset"))
        assert len(kernels) * kernel_us + len(copies) + len(fills) == busy_us, (kinds, busy_us)
        calls = {event["args"]["correlation"] for event in kinds["cuda_runtime"]}
        for event in kernels + copies + fills:
            assert event["args"]["correlation"] in calls and "External id" in event["args"]
            assert event["args"]["stream"] == kernels[0]["args"]["stream"]
        for before, after in itertools.pairwise(sorted(kernels, key=lambda e: e["ts"])):
            assert before["ts"] + before["dur"] <= after["ts"] + 0.01  # printed to a nanosecond
        assert {round(event["dur"]) for event in kernels} == {kernel_us}
        flows = {event["id"] for event in kinds["ac2g"]}
        assert {event["args"]["correlation"] for event in kernels} <= flows
        assert any(event["args"]["bytes"] == host.nbytes for event in copies)
        assert round(times["aten::addmm"]) == 2 * kernel_us, times
        seen.append([(e["name"], e["args"]["grid"], e["args"]["block"]) for e in kernels])
    assert seen[0] == seen[1]


def train():
    torch.manual_seed(0)
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(256, 4, 512, batch_first=True), 2).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    seen = []
    for _ in range(4):
        batch = torch.randn(8, 64, 256, device=DEVICE)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(torch.cuda.memory_allocated())
        del loss
    assert seen[2] == seen[3]
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.peak"] > 30 * 2**20
    assert stats["num_alloc_retries"] == 0
    device_agrees()


def oom():
    held = torch.empty(20 * 2**30, dtype=torch.uint8, device=DEVICE)
    try:
        torch.empty(5 * 2**30, dtype=torch.uint8, device=DEVICE)
    except torch.cuda.OutOfMemoryError as error:
        text = str(error)
    assert "Tried to allocate 5.00 GiB" in text, text
    assert "total capacity of 24.00 GiB of which 4.00 GiB is free" in text, text
    assert "this process has 20.00 GiB memory in use" in text, text
    assert torch.cuda.memory_stats()["num_ooms"] == 1
    del held
    torch.empty(5 * 2**30, dtype=torch.uint8, device=DEVICE)
    device_agrees()


def values():
    assert torch.tensor([1, 2, 3]).cuda().tolist() == [1, 2, 3]
    numbers = torch.randint(0, 10, (100,), device=DEVICE)
    # After a launch nothing is stored: sizes that depend on data follow the answer table, never
    # stale bytes.
    assert numbers.unique().numel() == 100 and numbers.nonzero().shape == (50, 1)
    assert torch.isfinite(numbers.float()).all() and not torch.isnan(numbers.float()).any()
    assert numbers.sort()[0].shape == (100,) and numbers.float().topk(5)[0].shape == (5,)
    assert torch.randn(9, device=DEVICE).norm().item() > torch.randn(9, device=DEVICE).norm().item() > 0
    assert (torch.randn(4, 20, device=DEVICE) > 0).sum(1).max().item() == 20
    truth = torch.distributions.Bernoulli(torch.tensor(0.3, device=DEVICE))
    truth.log_prob(torch.tensor(1.0, device=DEVICE))
    embedding = nn.Embedding(10, 8).cuda()
    embedding(numbers).sum().backward()
    query = torch.randn(2, 4, 128, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    nn.functional.scaled_dot_product_attention(query, query, query).sum().backward()
    assert (torch.randn(64, 64, device=DEVICE) @ torch.randn(64, 64, device=DEVICE)).shape[0] == 64
    linear = nn.Linear(8, 8).cuda()
    for options in ({"fused": True}, {"foreach": True}):
        optimizer = torch.optim.AdamW(linear.parameters(), **options)
        linear(torch.randn(4, 8, device=DEVICE)).sum().backward()
        optimizer.step()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    linear(torch.randn(4, 8, device=DEVICE))
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0


def devices():
    assert torch.cuda.is_available() and torch.cuda.device_count() == 2
    there = torch.ones(1 << 20, device="cuda:1")
    here = there.to("cuda:0")
    assert here.device.index == 0
    assert torch.cuda.memory_allocated(1) == torch.cuda.memory_allocated(0) == 4 << 20
    pinned = torch.arange(1000).pin_memory()
    assert pinned.is_pinned() and not torch.arange(3).is_pinned()
    assert pinned.cuda(1, non_blocking=True).cpu().tolist() == list(range(1000))
    device_agrees()


def graph():
    side = torch.cuda.Stream()
    data, model = torch.randn(64, 64, device=DEVICE), nn.Linear(64, 64).cuda()
    with torch.cuda.stream(side):
        for _ in range(3):
            model(data)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        assert torch.cuda.is_current_stream_capturing()
        model(data)
    assert not torch.cuda.is_current_stream_capturing()
    for _ in range(5):
        captured.replay()
    assert (0, 0) != max(s["segment_pool_id"] for s in torch.cuda.memory_snapshot())
    device_agrees()


def loader():
    from torch.utils.data import DataLoader

    batches = DataLoader(torch.arange(64).reshape(16, 4), batch_size=4, num_workers=2,
                         pin_memory=True)
    seen = []
    for batch in batches:
        assert batch.is_pinned()
        seen += batch.cuda(non_blocking=True).cpu().flatten().tolist()
    assert seen == list(range(64))


def repeat():
    """What has addresses of the host: pinned batches, copies both ways, streams, events, a graph."""
    from torch.utils.data import DataLoader

    model, copies = nn.Linear(512, 512).cuda(), torch.cuda.Stream()
    back = torch.empty(64, 512, pin_memory=True)
    for batch in DataLoader(torch.randn(256, 512), batch_size=64, pin_memory=True):
        with torch.cuda.stream(copies):
            data = batch.cuda(non_blocking=True)
            ready = copies.record_event()
        torch.cuda.current_stream().wait_event(ready)
        data.record_stream(torch.cuda.current_stream())
        model(data).sum().backward()
        back.copy_(data, non_blocking=True)
    torch.cuda.synchronize()
    large = torch.empty(30 << 20, dtype=torch.uint8).pin_memory()
    del large
    if torch.cuda.get_allocator_backend() == "native":
        graph()


def segments():
    """The card in 20 MiB pieces: expandable when the settings say so."""
    held = [torch.empty(20 << 20, dtype=torch.uint8, device=DEVICE) for _ in range(10)]
    kinds = {s["is_expandable"] for s in torch.cuda.memory_snapshot()}
    assert kinds == {"expandable_segments:True" in os.environ["PYTORCH_CUDA_ALLOC_CONF"]}
    del held[::2]
    torch.cuda.empty_cache()
    device_agrees()
    train()


def asynchronous():
    """backend:cudaMallocAsync has no snapshot; its figures come from the device's pool."""
    assert torch.cuda.get_allocator_backend() == "cudaMallocAsync"
    block = torch.empty(100 << 20, dtype=torch.uint8, device=DEVICE)
    assert torch.cuda.memory_allocated() == 100 << 20
    assert torch.cuda.memory_reserved() == 128 << 20
    device_agrees()
    del block
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0
    device_agrees()


def late_events():
    """Memory used by a side stream is held back until its event was asked often enough."""
    side = torch.cuda.Stream()
    for _ in range(20):
        block = torch.empty(50 << 20, dtype=torch.uint8, device=DEVICE)
        block.record_stream(side)
        del block
    assert torch.cuda.memory_reserved() > 100 << 20
    device_agrees()


def layers():
    """Layers of cuDNN; workspaces of a convolution by dnn/convolution_plan.h."""
    picture = torch.randn(8, 16, 32, 32, device=DEVICE)
    convolution = nn.Conv2d(16, 32, 3, padding=1).cuda()
    copies = 4 * (picture.numel() + convolution.weight.numel())  # in NHWC
    for last, workspace in ((False, copies), (True, 0)):
        form = torch.channels_last if last else torch.contiguous_format
        convolution, picture = convolution.to(memory_format=form), picture.to(memory_format=form)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        result = convolution(picture)
        kept = torch.cuda.memory_allocated() - before
        assert torch.cuda.max_memory_allocated() - before - kept == workspace
        result.sum().backward()
        del result
    sequence = torch.randn(4, 10, 32, device=DEVICE)
    for network in (nn.LSTM(32, 64, 2, bidirectional=True, dropout=0.1), nn.GRU(32, 64, 2),
                    nn.LSTM(32, 64, 2, proj_size=16), nn.RNN(32, 64, bias=False)):
        network.cuda()(sequence)[0].sum().backward()
        packed = nn.utils.rnn.pack_padded_sequence(sequence, torch.tensor([4, 3, 2, 1, 1, 1, 1, 1, 1, 1]))
        network.eval()(packed)
    for layer in (nn.BatchNorm2d(16), nn.ConvTranspose2d(16, 8, 3), nn.Conv2d(16, 16, 3, groups=16)):
        layer.cuda()(picture).sum().backward()
    nn.Conv3d(16, 8, 3).cuda()(torch.randn(2, 16, 8, 8, 8, device=DEVICE)).sum().backward()
    torch.backends.cudnn.benchmark = True
    nn.Conv2d(16, 32, 3).cuda()(picture).sum().backward()
    device_agrees()


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(
        GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=1000, bos_token_id=0,
                   eos_token_id=0)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(3):
        batch = torch.randint(0, 1000, (4, 64)).pin_memory().cuda(non_blocking=True)
        model(batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    device_agrees()


if __name__ == "__main__":
    for name in sys.argv[1].split(","):
        globals()[name]()
    print("ok")
