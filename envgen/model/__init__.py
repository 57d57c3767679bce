"""The DSA model that runs here: tokenizer, network, engine. Needs ``pip install 'envgen[train]'``."""
