"""What a problem means: expressions evaluated, calls made, submissions judged."""
