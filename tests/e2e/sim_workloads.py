"""Workloads that stock PyTorch runs on the simulated GPU (24 GiB, 2 devices, no context bytes); one
process each, by name. Every one asserts what must be exact: PyTorch's books against the device's."""

import os
import sys

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
    for last, workspace in ((False, 32 * 16 * 16 * 4), (True, 0)):  # a transformed filter
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
