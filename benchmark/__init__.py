"""What the bundle is compared with, and the command that compares: see docs/comparison.md."""
