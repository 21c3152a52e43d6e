"""What a group is here: how its elements act on signals, and which kernels its convolution uses."""

from abc import ABC, abstractmethod

from torch import Tensor


class Group(ABC):
    """A group G acting on signals over a grid X by (g·f)(x) = f(g⁻¹x).

    A group is a frozen value. The features of a convolution with K channels have K·order
    channels, orientation running fastest.
    """

    @property
    @abstractmethod
    def dim(self) -> int:
        """The dimension of the grid X."""

    @property
    @abstractmethod
    def order(self) -> int:
        """How many group elements lie over one point of X: 1 for Zⁿ, N for Z² ⋊ C_N."""

    @abstractmethod
    def act(self, x: Tensor, element: Tensor, *, features: bool = False) -> Tensor:
        """g·x for one element per leading index of `x`.

        Shapes: element [*S, d]; x [*S, ..., *X], where the axes S broadcast in both directions.
        With `features`, the last axis before X holds K·order channels and is permuted too.
        """

    @abstractmethod
    def weight_shape(
        self, out_channels: int, in_channels: int, kernel_size: int, *, lifting: bool
    ) -> tuple[int, ...]:
        """The shape of the free parameters of a convolution."""

    @abstractmethod
    def kernel(self, weight: Tensor, kernel_size: int, *, lifting: bool) -> Tensor:
        """Expand free parameters to the dense kernel [K·order, C or C·order, *kernel]."""
