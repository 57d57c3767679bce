"""Look-alikes of tests: a verdict counts where it depends on a secret that only this machine knows."""
