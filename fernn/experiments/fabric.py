"""Lightning Fabric, by whichever of its two names it is installed."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning.fabric import Fabric
    from lightning.fabric.plugins import DoublePrecision, MixedPrecision, Precision
else:
    try:
        from lightning.fabric import Fabric
        from lightning.fabric.plugins import DoublePrecision, MixedPrecision, Precision
    except ModuleNotFoundError:  # pytorch-lightning brings the same code under another name
        from lightning_fabric import Fabric
        from lightning_fabric.plugins import DoublePrecision, MixedPrecision, Precision

__all__ = ["DoublePrecision", "Fabric", "MixedPrecision", "Precision"]
