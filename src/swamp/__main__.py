"""python -m swamp"""

import os
import sys

# Python itself puts the current directory first for -m, unless it was told to be safe. Nothing of swamp may be imported from there.
try:
    here = os.getcwd()
except FileNotFoundError:  # The directory was removed.
    here = ""
if not sys.flags.safe_path and sys.path[:1] in ([""], [here]):
    del sys.path[0]

from swamp.cli import main

main()
