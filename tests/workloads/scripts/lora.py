"""LoRA on GPT-2 with peft and accelerate."""
import torch
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
model = get_peft_model(GPT2LMHeadModel(GPT2Config()),
                       LoraConfig(r=8, target_modules=["c_attn"], task_type="CAUSAL_LM"))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
model, optimizer = accelerator.prepare(model, optimizer)
for step in range(4):
    tokens = torch.randint(0, 50257, (4, 256), device=accelerator.device)
    with accelerator.accumulate(model):
        accelerator.backward(model(input_ids=tokens, labels=tokens).loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
