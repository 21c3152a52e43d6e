"""fernn: flow-equivariant sequence models. A moving scene is the same scene seen from a moving frame."""

from fernn.flows import RigidMotion, Rotation, Translation
from fernn.groups import SE2
from fernn.models import CNN3D, Classifier, Forecaster, load, save
from fernn.nn import (
    CausalAttention,
    CausalConv,
    Cell,
    ConvGRU,
    FlowConv,
    FlowEquivariant,
    FlowPool,
    FlowRNN,
    LearnedTransport,
    State,
)

__version__ = "0.1.0"
