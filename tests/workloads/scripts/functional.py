"""Function transforms, forward mode, decompositions with gradients, complex numbers, hooks."""
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jvp, stack_module_state, vmap

model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).cuda()
inputs, labels = torch.randn(64, 16).cuda(), torch.randint(0, 4, (64,)).cuda()
parameters = {k: v.detach() for k, v in model.named_parameters()}


def loss_of(weights, x, y):
    return nn.functional.cross_entropy(functional_call(model, weights, (x[None],)), y[None])


each = vmap(grad(loss_of), in_dims=(None, 0, 0))(parameters, inputs, labels)
print({k: tuple(v.shape) for k, v in each.items()})
models = [nn.Linear(16, 3).cuda() for _ in range(5)]
weights, buffers = stack_module_state(models)
print(vmap(lambda w, b: functional_call(models[0], (w, b), (inputs,)))(weights, buffers).shape)
print(jvp(lambda x: model(x).sum(), (inputs,), (torch.ones_like(inputs),))[1].shape)
print(hessian(lambda x: model(x).square().sum())(inputs[0]).shape)
matrix = torch.randn(3, 24, 24).cuda().requires_grad_()
pairs = [torch.linalg.qr(matrix)[1], torch.linalg.svdvals(matrix), torch.linalg.lu(matrix)[2],
         torch.linalg.cholesky(matrix @ matrix.mT + 24 * torch.eye(24).cuda()),
         torch.linalg.solve(matrix, matrix.detach()), torch.fft.fft2(matrix).abs(), torch.fft.irfft(torch.fft.rfft(matrix)),
         torch.linalg.matrix_exp(matrix), torch.cdist(matrix, matrix), torch.logdet(matrix @ matrix.mT)]
sum(part.sum() for part in pairs).backward()
seen = []
handle = model[0].register_full_backward_hook(lambda module, gone, came: seen.append(came[0].shape))
with torch.autograd.graph.save_on_cpu(pin_memory=True):
    model(inputs).sum().backward()
handle.remove()
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    return loss


optimizer.step(closure)
print(seen, torch.sort(inputs)[0].shape, inputs.topk(3).values.shape, torch.cumsum(inputs, 0).shape,
      torch.histc(inputs).shape, torch.multinomial(inputs.softmax(-1), 2).shape, torch.nested.as_nested_tensor(
          [inputs[:5], inputs[:9]], layout=torch.jagged).shape[0])
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
