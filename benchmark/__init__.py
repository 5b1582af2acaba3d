"""What the bundle is compared with, and the command for it: see docs/measuring/comparison.md."""

import scripts as scripts  # ready for Ctrl-C before anything large is imported
