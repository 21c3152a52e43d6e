"""The MNIST digits inside the package, the script that chose them, and their licence."""
