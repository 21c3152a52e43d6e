"""The paper's models: forecaster, classifier, baselines; saved and loaded as safetensors."""

from fernn.models._classifier import CNN3D, TRANSPORTS, Classifier
from fernn.models._forecaster import READOUTS, Forecaster
from fernn.models._io import MODELS, load, save
from fernn.models._pretrained import load_pretrained, pretrained, pretrained_record
from fernn.models._sequence import SequenceForecaster
from fernn.models._stream import Stream

__all__ = [
    "CNN3D",
    "MODELS",
    "READOUTS",
    "TRANSPORTS",
    "Classifier",
    "Forecaster",
    "SequenceForecaster",
    "Stream",
    "load",
    "load_pretrained",
    "pretrained",
    "pretrained_record",
    "save",
]
