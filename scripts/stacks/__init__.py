"""Where a server runs: in containers, on a GPU, or as plain processes."""
