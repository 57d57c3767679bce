"""The command line: ten-line commands that build a config and call a room."""
