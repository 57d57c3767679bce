"""The pipeline of proofs: theorems by forward derivation, and proofs with one step spoilt."""
