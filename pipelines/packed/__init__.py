"""``envgen pack``: a folder that a person wrote becomes a proven dataset."""
