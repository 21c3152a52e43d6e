"""`conv_stack`: zero-padded convolutions with ReLU between them, frame by frame, one gradient."""
