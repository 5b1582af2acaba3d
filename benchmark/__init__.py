"""What the bundle is compared with, and the command that compares: see docs/comparison.md."""

import scripts as scripts  # ready for Ctrl-C before anything large is imported
