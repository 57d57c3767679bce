"""``python -m envgen``."""

from envgen.cli import main

main()
