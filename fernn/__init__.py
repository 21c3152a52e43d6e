"""Flow-equivariant sequence models: a moving scene is the same scene seen from a moving frame."""

from fernn.flows import RigidMotion, Rotation, Translation
from fernn.groups import SE2
from fernn.models import Classifier, Forecaster, Stream, load, load_pretrained, pretrained, save
from fernn.nn import Cell, ConvGRU, FlowEquivariant, FlowPool, FlowRNN
from fernn.verify import assert_flow_equivariant, verify

__version__ = "0.1.0"

__all__ = [
    "SE2",
    "Cell",
    "Classifier",
    "ConvGRU",
    "FlowEquivariant",
    "FlowPool",
    "FlowRNN",
    "Forecaster",
    "RigidMotion",
    "Rotation",
    "Stream",
    "Translation",
    "assert_flow_equivariant",
    "load",
    "load_pretrained",
    "pretrained",
    "save",
    "verify",
]
