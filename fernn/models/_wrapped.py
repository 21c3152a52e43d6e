"""Models inside what others wrap around them: DistributedDataParallel, torch.compile."""

from torch import nn


def unwrapped(name: str, model: object, kinds: tuple[type[nn.Module], ...]) -> str:
    """A sentence that says where in `model` one of `kinds` is, empty where there is none.

    >>> unwrapped("model", nn.DataParallel(nn.Linear(1, 1)), (nn.Linear,))
    ' Pass model.module, which it wraps.'
    """
    for inside in ("_orig_mod", "module"):
        inner = getattr(model, inside, None)
        if isinstance(inner, kinds):
            return f" Pass {name}.{inside}, which it wraps."
        if isinstance(inner, nn.Module):
            return unwrapped(f"{name}.{inside}", inner, kinds)
    return ""
