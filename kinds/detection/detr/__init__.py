"""Detectors of Hugging Face's transformers, such as DETR, from the folders that it saves."""
