"""Run policies in environments; trajectories, pass@k and filtering."""
