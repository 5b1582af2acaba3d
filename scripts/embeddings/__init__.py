"""The service of embeddings: its network, and how it is kept up."""
