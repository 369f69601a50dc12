"""One training loop of the published measurements: MODEL OPTIMIZER BATCH. Prints the peak reserved
bytes and those reserved when the published monitor took its first sample, which the measurements
subtract.

The loops, the models and the monitor are those of the data set's repository
(Stone-ResearchLife/xMem: perf_estimator/models.py, exp/trainer/train_loop.py):
- convolutional models have torchvision's defaults, 1000 classes, MNASNet and MobileNetV3 10;
- their gradients are cleared between the loss and backward(), so that they live through the next
  forward pass; those of language models after the step;
- both keep inputs, outputs and loss until the next batch is loaded; four iterations;
- the monitor is a thread that starts before the model is moved to the device. The language loop then
  waits for two seconds; the convolutional one does not. How much of the model its first look saw is not
  recorded: all of it, is assumed (accuracy.py prints what none and half would give).
"""

import sys

import torch
from torch import nn


class Vision:
    clears_before_backward = True
    monitor_sees_the_model = True

    def __init__(self, name):
        import torchvision.models as models

        key = name.split(" ")[0]
        builders = {"ConvNeXtTiny": models.convnext_tiny, "ConvNeXtBase": models.convnext_base,
                    "MNASNet": lambda: models.mnasnet1_0(num_classes=10),
                    "MobileNetV3-Large": lambda: models.mobilenet_v3_large(num_classes=10),
                    "MobileNetV3-Small": lambda: models.mobilenet_v3_small(num_classes=10),
                    "MobileNetV2": models.mobilenet_v2, "RegNetX400MF": models.regnet_x_400mf,
                    "RegNetY400MF": models.regnet_y_400mf}
        self.model = builders[key]() if key in builders else getattr(models, key.lower())()

    def batch(self, size):
        return torch.randn(size, 3, 86, 86), torch.randint(0, 10, (size,))

    def forward(self, images, labels):
        outputs = self.model(images)
        return outputs, nn.functional.cross_entropy(outputs, labels)


class Language:
    clears_before_backward = False
    monitor_sees_the_model = False

    def __init__(self, name):
        import transformers as t

        configurations = {
            "EleutherAI/gpt-neo-125M": lambda: t.GPTNeoForCausalLM(t.GPTNeoConfig(
                hidden_size=768, num_layers=12, num_heads=12, attention_types=[[["global", "local"], 6]],
                max_position_embeddings=2048, window_size=256)),
            "T5-small": lambda: t.T5ForConditionalGeneration(t.T5Config(decoder_start_token_id=0)),
            "cerebras/Cerebras-GPT-111M": lambda: t.GPT2LMHeadModel(t.GPT2Config(
                n_embd=768, n_layer=10, n_head=12, n_inner=3072, n_positions=2048, activation_function="gelu")),
            "distilbert/distilgpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config(n_layer=6)),
        }
        self.model = configurations[name]()

    def batch(self, size):
        return torch.randint(1, 30000, (size, 128)), torch.ones(size, 128, dtype=torch.long)

    def forward(self, tokens, mask):
        outputs = self.model(input_ids=tokens, attention_mask=mask, labels=tokens)
        return outputs, outputs.loss


def main():
    name, optimizer_name, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    task = (Language if "/" in name or name.startswith("T5") else Vision)(name)
    task.model.cuda().train()
    subtracted = torch.cuda.memory_reserved() if task.monitor_sees_the_model else 0
    optimizer = getattr(torch.optim, optimizer_name)(task.model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=7)
    for _ in range(4):
        inputs = task.batch(size)  # on the host: the last batch leaves the device here
        inputs = tuple(tensor.cuda() for tensor in inputs)
        outputs, loss = task.forward(*inputs)
        if task.clears_before_backward:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not task.clears_before_backward:
            optimizer.zero_grad()
        schedule.step()
    print("peak", torch.cuda.max_memory_reserved())
    print("subtracted", subtracted)


if __name__ == "__main__":
    main()
