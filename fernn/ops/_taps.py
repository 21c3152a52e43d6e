"""What a convolution of few channels reads on a torus, gathered for a product with its columns."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"

import triton
import triton.language as tl

from fernn.ops._launch import wrap


@triton.jit
def torus_taps(p_frame, b_y, b_x, b_mask, H, W, C, SIDE: tl.constexpr, BT: tl.constexpr):
    """What lies under a kernel of SIDE×SIDE at pixels of an image [C, H, W]: [BP, BT]."""
    b_t = tl.arange(0, BT)
    b_c = b_t // (SIDE * SIDE)
    y = wrap(b_y[:, None] + (b_t // SIDE % SIDE - SIDE // 2)[None, :], H)
    x = wrap(b_x[:, None] + (b_t % SIDE - SIDE // 2)[None, :], W)
    o_tap = (b_c * H * W)[None, :] + y * W + x
    return tl.load(p_frame + o_tap, mask=b_mask[:, None] & (b_c < C)[None, :], other=0.0)
