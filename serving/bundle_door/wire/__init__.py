"""HTTP/1 and HTTP/2, bodies and tensors: what is read and written."""
