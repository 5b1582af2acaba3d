"""The running server: starting, asking, loading, recovering."""
