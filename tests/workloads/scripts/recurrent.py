"""A language model of LSTM layers, then the same of GRU layers."""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embedding = nn.Embedding(5000, 256)
        self.layers = kind(256, 512, 2, batch_first=True, dropout=0.2)
        self.head = nn.Linear(512, 5000)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens))[0])


for kind in (nn.LSTM, nn.GRU):
    model = Model(kind).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(3):
        tokens = torch.randint(0, 5000, (32, 65)).cuda()
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()
        optimizer.zero_grad()
    del model, optimizer, loss
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
