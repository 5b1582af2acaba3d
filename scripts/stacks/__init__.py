"""Where servers run: in containers, on a GPU, or as plain processes."""
