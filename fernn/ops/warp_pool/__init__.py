"""The warped readout: every slice moved by a rigid motion, and the maximum over velocities."""
