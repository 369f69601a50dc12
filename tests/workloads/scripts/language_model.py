"""GPT-2 small or a Llama-shaped model from its configuration; gradient accumulation, optionally
checkpointing."""
import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("model", choices=["gpt2", "llama"])
parser.add_argument("--checkpointing", action="store_true")
options = parser.parse_args()

if options.model == "gpt2":
    model = GPT2LMHeadModel(GPT2Config())
else:
    model = LlamaForCausalLM(LlamaConfig(hidden_size=512, intermediate_size=1376, num_hidden_layers=6,
                                         num_attention_heads=8, num_key_value_heads=4, vocab_size=8000))
model = model.cuda().train()
if options.checkpointing:
    model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
for step in range(4):
    tokens = torch.randint(0, 8000, (4, 256)).cuda()
    (model(tokens, labels=tokens).loss / 2).backward()
    if step % 2 == 1:
        optimizer.step()
        optimizer.zero_grad()
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
