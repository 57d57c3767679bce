"""``python -m envgen.cli``."""

from envgen.cli import main

main()
