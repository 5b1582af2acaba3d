"""Who may ask: keys and certificates."""
