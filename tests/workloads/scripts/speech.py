"""Sequences of different lengths: packed LSTM, attention over padding, CTC loss, spectrograms."""
import torch
from torch import nn

front = nn.Sequential(nn.Conv1d(129, 96, 5, padding=2), nn.ReLU()).cuda()
network = nn.LSTM(96, 128, num_layers=2, bidirectional=True, batch_first=True, dropout=0.1).cuda()
attention = nn.MultiheadAttention(256, 4, batch_first=True).cuda()
head = nn.Linear(256, 30).cuda()
parameters = [p for module in (front, network, attention, head) for p in module.parameters()]
optimizer = torch.optim.NAdam(parameters)
scaler = torch.amp.GradScaler()
for step in range(3):
    sound = torch.randn(8, 16000).cuda()
    spectrum = torch.stft(sound, 256, 200, window=torch.hann_window(256).cuda(), return_complex=True).abs()
    lengths = torch.tensor([81, 80, 70, 66, 60, 55, 50, 41])
    with torch.autocast("cuda", dtype=torch.float16):
        features = front(spectrum).transpose(1, 2)
        packed = nn.utils.rnn.pack_padded_sequence(features, lengths, batch_first=True)
        states, _ = nn.utils.rnn.pad_packed_sequence(network(packed)[0], batch_first=True)
        padding = torch.arange(states.shape[1])[None, :] >= lengths[:, None]
        states, _ = attention(states, states, states, key_padding_mask=padding.cuda(), need_weights=False)
        scores = head(states).float().log_softmax(-1).transpose(0, 1)
    labels = torch.randint(1, 30, (8, 12)).cuda()
    loss = nn.functional.ctc_loss(scores, labels, lengths, torch.full((8,), 12), zero_infinity=True)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(parameters, 1.0)
    scaler.step(optimizer)
    scaler.update()
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
