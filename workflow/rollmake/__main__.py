"""`python -m rollmake` is the command `rollmake`."""

import sys

from rollmake.cli import main

sys.exit(main())
