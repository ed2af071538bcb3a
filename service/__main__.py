"""``python -m attributary.service``: the command line where the console script is not on the path."""

from __future__ import annotations

import sys

from attributary.service.main import main

sys.exit(main())
