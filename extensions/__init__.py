"""What one need not have: each a folder, which can be taken out."""
