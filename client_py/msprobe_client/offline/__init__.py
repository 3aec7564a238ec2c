"""Offline models: an ONNX graph runs value by value, and its values meet those of the PyTorch run that it came from."""
