"""Flow-equivariant sequence models: a moving scene is the same scene seen from a moving frame."""

import torch

from fernn.flows import RigidMotion, Rotation, Translation
from fernn.groups import SE2
from fernn.models import Classifier, Forecaster, Stream, load, load_pretrained, pretrained, save
from fernn.nn import Cell, ConvGRU, FlowEquivariant, FlowPool, FlowRNN, State
from fernn.verify import assert_flow_equivariant, verify

# `torch.load` reads files of others that hold these values, by its defaults: no such class runs
# code of a file, and all but the plain State check their arguments again.
torch.serialization.add_safe_globals([SE2, RigidMotion, Rotation, State, Translation])

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
