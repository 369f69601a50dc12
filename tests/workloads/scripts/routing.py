"""A mixture of experts: top-k routing, sizes that depend on data, sparse embedding gradients."""
import torch
from torch import nn


class Experts(nn.Module):
    def __init__(self, width=128, count=4, chosen=2):
        super().__init__()
        self.gate, self.chosen = nn.Linear(width, count), chosen
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                                   nn.Linear(4 * width, width)) for _ in range(count))

    def forward(self, tokens):
        weights, experts = self.gate(tokens).softmax(-1).topk(self.chosen, dim=-1)
        out = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            rows, places = torch.where(experts == index)
            out.index_add_(0, rows, expert(tokens[rows]) * weights[rows, places, None])
        return out


embedding, bag = nn.Embedding(1000, 128, sparse=True).cuda(), nn.EmbeddingBag(500, 128, sparse=True).cuda()
layer = Experts().cuda()
dense = torch.optim.AdamW(layer.parameters())
sparse = torch.optim.SparseAdam([*embedding.parameters(), *bag.parameters()])
for step in range(3):
    words = torch.randint(0, 1000, (512,)).cuda()
    bags = bag(torch.randint(0, 500, (2048,)).cuda(), torch.arange(0, 2048, 4).cuda())
    with torch.autocast("cuda", dtype=torch.bfloat16):
        tokens = embedding(words).float() + bags
    out = layer(tokens)
    loss = nn.functional.cross_entropy(out, torch.randint(0, 128, (512,)).cuda())
    for optimizer in (dense, sparse):
        optimizer.zero_grad()
    loss.backward()
    for optimizer in (dense, sparse):
        optimizer.step()
    unique, inverse, counts = words.unique(return_inverse=True, return_counts=True)
    assert len(unique) == len(counts) == 512  # all values are different (src/simcuda/answers.def)
    kept = words[words > 500]
    assert len(kept) == 256  # half of a mask is set
    print(len(unique), inverse.shape, counts.shape, kept.shape, torch.bincount(words, minlength=10).shape,
          torch.unique_consecutive(words).shape, torch.masked_select(out, out > 0).shape,
          torch.repeat_interleave(words, 3).shape, torch.nn.utils.rnn.pad_sequence([words, words[:5]]).shape)
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
