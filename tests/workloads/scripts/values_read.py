"""Programs whose way depends on values that they read from the device: a checkpoint resumed on it, averaged
batch statistics, padded batches in evaluation, distributions, repeats, bins, a tensor sent to a process."""
import io

import torch
import torch.multiprocessing as multiprocessing
from torch import nn
from torch.distributions import Categorical, MultivariateNormal, Normal


def receive(tensors, answers):
    tensor = tensors.get()
    answers.put(tuple(tensor.shape))
    del tensor


def resume():
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(16, 4)).cuda()
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(4):
        if step == 2:
            kept = io.BytesIO()
            torch.save(optimizer.state_dict(), kept)
            kept.seek(0)
            optimizer.load_state_dict(torch.load(kept, map_location="cuda"))  # its counts of steps, too
        model(torch.randn(8, 3, 32, 32).cuda()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        average.update_parameters(model)
    torch.optim.swa_utils.update_bn([torch.randn(8, 3, 32, 32) for _ in range(2)], average, device="cuda")


def evaluate():
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).cuda().eval()
    padding = torch.arange(20, device="cuda") >= torch.tensor([[20], [7]], device="cuda")
    with torch.inference_mode():
        assert encoder(torch.randn(2, 20, 64).cuda(), src_key_padding_mask=padding).shape == (2, 20, 64)
    lengths = (~padding).sum(1).cpu()
    assert lengths.tolist() == [10, 10]  # half of a mask is set
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(2, 20, 64).cuda(), lengths, batch_first=True)
    nn.GRU(64, 32, batch_first=True).cuda()(packed)


def draw():
    mean, one = torch.zeros((), device="cuda"), torch.ones((), device="cuda")
    Normal(mean, one + 0).rsample()
    Categorical(probs=torch.rand(1, 5, device="cuda")).sample()
    MultivariateNormal(torch.zeros(3, device="cuda"), torch.eye(3, device="cuda")).rsample()
    experts = torch.randint(0, 4, (64,), device="cuda")
    tokens = torch.randn(64, 32, device="cuda")
    assert sum(len(part) for part in tokens.split(experts.bincount(minlength=4).tolist())) == 64
    assert tokens.repeat_interleave(experts, dim=0).shape == (64, 32)  # each once
    assert int(torch.isnan(tokens).sum()) == 0


if __name__ == "__main__":
    resume()
    evaluate()
    draw()
    processes = multiprocessing.get_context("spawn")
    tensors, answers = processes.Queue(), processes.Queue()
    other = processes.Process(target=receive, args=(tensors, answers))
    other.start()
    sent = torch.randn(1000, 10).cuda()
    tensors.put(sent)
    assert answers.get() == (1000, 10)
    other.join()
    print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
