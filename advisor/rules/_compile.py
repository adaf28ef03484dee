"""What rules about torch.compile share."""

from __future__ import annotations

# Volta: the first that Triton makes kernels for.
CAPABILITY = (7, 0)
