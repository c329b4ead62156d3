"""`python -m discorl` is `discorl`."""

import sys

from discorl.cli import main

if __name__ == "__main__":
    sys.exit(main())
