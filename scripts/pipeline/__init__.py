"""The flow, one script a step: weights -> ONNX (export) -> engine -> model repository."""
