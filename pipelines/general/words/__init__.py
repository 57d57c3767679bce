"""The texts for an agent: prompt, tools, form of the answer; all of it can be read back."""
