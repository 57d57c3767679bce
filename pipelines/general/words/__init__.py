"""What an agent is told: prompt, tools, form of the answer; all of it can be read back."""
