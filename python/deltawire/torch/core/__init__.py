"""What every way to train builds on: arguments, module parameters, bootstrap, checkpoints."""
