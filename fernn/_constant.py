"""Constant tensors that follow their users from device to device."""

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor


class Constant:
    """A tensor that is the same for ever, copied once to each device that asks for it.

    A buffer would do the same, but one that is not saved loses its values when a module is built
    on the meta device and materialised later.
    """

    def __init__(self, value: Tensor) -> None:
        self._value = value
        self._copies: dict[torch.device, Tensor] = {}

    def __reduce__(self) -> tuple[type["Constant"], tuple[Tensor]]:
        return Constant, (self._value,)  # a pickle goes where there may be no such device

    def on(self, device: torch.device) -> Tensor:
        copy = self._copies.get(device)
        if copy is None:
            if torch.compiler.is_compiling():
                return self._value.to(device)
            with torch.inference_mode(False):  # a copy outlives the mode of the one who asks first
                copy = self._value.to(device)
            if lasting(copy):
                self._copies[device] = copy
        return copy


def lasting(x: Tensor) -> bool:
    """Whether x may outlive its maker, which a trace, a fake mode or a torch.func transform is."""
    if torch.compiler.is_compiling():
        return False
    return type(x) is Tensor and not is_functorch_wrapped_tensor(x)
