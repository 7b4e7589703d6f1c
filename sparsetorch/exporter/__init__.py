"""From a PyTorch module to a checked .tflite: ONNX, onnx2tf, sparse encoding, comparison with PyTorch."""
