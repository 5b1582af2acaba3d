"""The function in function.py: bundle_serving.callable_model."""

from bundle_serving.callable_model import TritonPythonModel as TritonPythonModel
