"""Starts the command line: `python -I -m app`."""

import sys

from app.cli import main

sys.exit(main())
