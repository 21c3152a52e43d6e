"""Forward-mode derivatives, which functions with a backward pass of their own do not have."""

from torch.autograd import forward_ad


def forward_mode() -> bool:
    """Whether a dual level is open, as in `torch.func.jvp`: plain torch carries tangents on."""
    return forward_ad._current_level >= 0
