"""Constants that follow their users from device to device."""

import torch

from fernn._constant import Constant


def test_a_copy_outlives_the_mode_of_the_one_who_asks_first() -> None:
    """A tensor of inference mode could not be saved for a backward pass later."""
    constant, meta = Constant(torch.arange(3)), torch.device("meta")
    with torch.inference_mode():
        assert not constant.on(meta).is_inference()
    assert constant.on(meta) is constant.on(meta)
