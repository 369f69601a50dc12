"""A detection model: training steps with targets of different sizes, then inference with NMS."""
import torch
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn

model = fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None, num_classes=5).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
for step in range(2):
    images = [torch.rand(3, 240 + 40 * i, 320).cuda() for i in range(2)]
    targets = [{"boxes": torch.tensor([[10.0, 20.0, 100.0, 150.0], [30.0, 30.0, 60.0, 90.0]][:count]).cuda(),
                "labels": torch.tensor([1, 2][:count]).cuda()} for count in (1, 2)]
    loss = sum(model(images, targets).values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    found = model(images)
print("found", [len(image["boxes"]) for image in found])
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
