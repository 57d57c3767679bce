"""The answers of a problem as a space: searched, counted, and walked along its edge."""
