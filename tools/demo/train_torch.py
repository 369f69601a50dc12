"""A small transformer trained with AdamW on batches of varying length: an ordinary PyTorch script.

Prints torch's own memory figures at the end; `fragscope report` of the recording shows the same.
"""

import torch
from torch import nn

DEVICE = "cuda"
LENGTHS = [128, 256, 192, 384, 320, 512, 448, 512]


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5).softmax(-1)
        x = x + self.proj((scores @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


def main():
    torch.manual_seed(0)
    width, heads, vocabulary, batch = 512, 8, 8192, 8
    model = nn.Sequential(nn.Embedding(vocabulary, width), *[Block(width, heads) for _ in range(6)],
                          nn.Linear(width, vocabulary)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step, length in enumerate(LENGTHS, 1):
        tokens = torch.zeros(batch, length + 1, dtype=torch.long).to(DEVICE)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, vocabulary), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}, length {length}: {torch.cuda.memory_allocated()} bytes allocated", flush=True)
    stats = torch.cuda.memory_stats()
    for key in ("allocated_bytes.all.peak", "allocated_bytes.all.current", "reserved_bytes.all.peak",
                "reserved_bytes.all.current"):
        print(f"{key}: {stats[key]}")


if __name__ == "__main__":
    main()
