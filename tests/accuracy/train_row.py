"""One training loop of the published measurements: MODEL OPTIMIZER BATCH. Prints the peak reserved
bytes. Four iterations, gradients cleared at the start of each; loss and outputs live until they are
overwritten; models from their configuration."""

import sys

import torch
from torch import nn


def vision(name):
    import torchvision.models as models

    key = name.split(" ")[0].lower().replace("-", "_").replace("x400", "_x_400").replace("y400", "_y_400")
    names = {"convnexttiny": "convnext_tiny", "convnextbase": "convnext_base", "mnasnet": "mnasnet1_0",
             "mobilenetv3_large": "mobilenet_v3_large", "mobilenetv3_small": "mobilenet_v3_small",
             "mobilenetv2": "mobilenet_v2", "regnet_x_400mf": "regnet_x_400mf",
             "regnet_y_400mf": "regnet_y_400mf"}
    model = getattr(models, names.get(key, key))(num_classes=10)

    def step(batch):
        images = torch.randn(batch, 3, 86, 86).cuda()
        labels = torch.randint(0, 10, (batch,)).cuda()
        outputs = model(images)
        return outputs, nn.functional.cross_entropy(outputs, labels)

    return model, step


def language(name):
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
    model = configurations[name]()

    def step(batch):
        tokens = torch.randint(1, 30000, (batch, 128)).cuda()
        outputs = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=tokens)
        return outputs, outputs.loss

    return model, step


def main():
    name, optimizer_name, batch = sys.argv[1], sys.argv[2], int(sys.argv[3])
    model, step = (language if "/" in name or name.startswith("T5") else vision)(name)
    model.cuda().train()
    optimizer = getattr(torch.optim, optimizer_name)(model.parameters(), lr=1e-4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(4):
        optimizer.zero_grad()
        outputs, loss = step(batch)
        loss.backward()
        optimizer.step()
        schedule.step()
    print("peak", torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
