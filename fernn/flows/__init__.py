"""ψ: a group and a velocity set V; yields exp(tν) and acts through its group."""

from fernn.flows._base import Flow, Velocity
from fernn.flows._rigid import RigidMotion, Rotation
from fernn.flows._translation import Translation

__all__ = ["Flow", "RigidMotion", "Rotation", "Translation", "Velocity"]
