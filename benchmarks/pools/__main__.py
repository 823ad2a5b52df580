"""`python -m benchmarks.pools`; see `command`."""

from __future__ import annotations

import sys

from isthmus.cli.failures import guarded

from .command import call

sys.exit(guarded(call, sys.argv[1:]))
