"""Two networks and two optimizers, a penalty on gradients (create_graph), spectral norm, an average."""
import copy

import torch
from torch import nn

maker = nn.Sequential(nn.ConvTranspose2d(64, 64, 4), nn.BatchNorm2d(64), nn.ReLU(),
                      nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.InstanceNorm2d(32), nn.LeakyReLU(0.2),
                      nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(32, 3, 3, padding=1), nn.Tanh()).cuda()
critic = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 32, 4, 2, 1)), nn.SiLU(),
                       nn.Conv2d(32, 64, 4, 2, 1), nn.GroupNorm(8, 64), nn.SiLU(), nn.Flatten(),
                       nn.LazyLinear(1)).cuda()
with torch.no_grad():
    critic(torch.zeros(2, 3, 16, 16).cuda())
average = copy.deepcopy(maker)
makes = torch.optim.Adam(maker.parameters(), betas=(0.5, 0.9))
judges = torch.optim.RMSprop(critic.parameters(), lr=1e-4)
for step in range(3):
    real, noise = torch.randn(16, 3, 16, 16).cuda(), torch.randn(16, 64, 1, 1).cuda()
    made = maker(noise)
    mixed = torch.lerp(real, made.detach(), torch.rand(16, 1, 1, 1).cuda()).requires_grad_()
    slope, = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    penalty = ((slope.flatten(1).norm(dim=1) - 1) ** 2).mean()
    loss = critic(made.detach()).mean() - critic(real).mean() + 10 * penalty
    judges.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
    judges.step()
    makes.zero_grad()
    (-critic(maker(noise)).mean()).backward()
    makes.step()
    with torch.no_grad():
        torch._foreach_lerp_(list(average.parameters()), list(maker.parameters()), 0.01)
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
