"""ViT-B/16 with bfloat16 autocast and AdamW."""
import torch
import torch.nn.functional as F
import torchvision

model = torchvision.models.vit_b_16().cuda()
optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
for step in range(3):
    images, labels = torch.randn(16, 3, 224, 224).cuda(), torch.randint(0, 1000, (16,)).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
