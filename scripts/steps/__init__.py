"""Weights -> ONNX -> engine or plan, each step checked against PyTorch."""
