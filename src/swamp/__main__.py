"""python -m swamp"""

from swamp.cli import main

main()
