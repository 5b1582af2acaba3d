"""A network of somebody else's: what it is, and the graph around it that the pipelines serve."""
