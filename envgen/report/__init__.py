"""Reports, plots and data cards for people."""
