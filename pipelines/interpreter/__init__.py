"""The pipeline of code-interpreter tasks: problems worth writing code for, each answer derived twice."""
