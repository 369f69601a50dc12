"""Decompositions, transforms and sparse products; and sizes that depend on data."""
import torch

matrix, batch = torch.randn(64, 64).cuda(), torch.randn(3, 16, 16).cuda()
for name in ("inv", "qr", "svd", "cholesky", "eigh", "pinv", "det", "slogdet", "eig", "eigvals", "lu",
             "matrix_rank", "cond"):
    for tensor in (matrix, batch):
        getattr(torch.linalg, name)(tensor)
torch.linalg.solve(matrix, matrix)
torch.linalg.lstsq(matrix, matrix)
torch.fft.rfft2(batch)
torch.stft(torch.randn(4, 4000).cuda(), 256, window=torch.hann_window(256).cuda(), return_complex=True)
torch.sparse.mm(torch.eye(64).to_sparse().cuda(), matrix)
mask = matrix > 0
print(matrix[mask].shape, mask.nonzero().shape, torch.randint(0, 9, (100,)).cuda().unique().shape)
print("memory", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
