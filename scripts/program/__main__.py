"""python -m scripts.program --folder . up: in a checkout, without make."""

import sys

from scripts.program import answering

if __name__ == "__main__":
    sys.exit(answering.main())
