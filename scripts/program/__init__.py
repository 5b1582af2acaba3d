"""`triton-bundle`, the command line that the package brings: the verbs of make without make."""
