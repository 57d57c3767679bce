"""Look-alikes of tests: a verdict is believed where it follows a secret that only this machine knows."""
