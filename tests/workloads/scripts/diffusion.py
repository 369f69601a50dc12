"""A small UNet of a diffusion model."""
import torch
from diffusers import DDPMScheduler, UNet2DModel

model = UNet2DModel(sample_size=64, block_out_channels=(64, 128, 256), layers_per_block=1,
                    down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
                    up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D")).cuda()
optimizer, schedule = torch.optim.AdamW(model.parameters()), DDPMScheduler()
for step in range(3):
    images = torch.randn(4, 3, 64, 64).cuda()
    noise, times = torch.randn_like(images), torch.randint(0, 1000, (4,)).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        predicted = model(schedule.add_noise(images, noise, times), times).sample
    torch.nn.functional.mse_loss(predicted.float(), noise).backward()
    optimizer.step()
    optimizer.zero_grad()
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
