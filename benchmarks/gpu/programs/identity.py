"""Print a GPU's identity and memory as torch sees them, after a short training that holds some memory."""

import torch
from common import say

model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(60):
    model(torch.randn(4096, 2048, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
free, total = torch.cuda.mem_get_info()
outside = total - free - torch.cuda.memory_reserved()
say(
    uuid=str(torch.cuda.get_device_properties(0).uuid),
    total=total,
    room=total - outside - torch.cuda.max_memory_reserved(),
    reserved=torch.cuda.max_memory_reserved(),
)
