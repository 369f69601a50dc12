"""A Transformer encoder from torch.nn, data from a DataLoader with workers and pinning."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    data = TensorDataset(torch.randn(64, 128, 256), torch.randint(0, 10, (64,)))
    loader = DataLoader(data, batch_size=16, num_workers=2, pin_memory=True, shuffle=True)
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 4), nn.Flatten(), nn.Linear(128 * 256, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for epoch in range(2):
        for inputs, labels in loader:
            assert inputs.is_pinned()
            outputs = model(inputs.cuda(non_blocking=True))
            nn.functional.cross_entropy(outputs, labels.cuda(non_blocking=True)).backward()
            optimizer.step()
            optimizer.zero_grad()
    print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
