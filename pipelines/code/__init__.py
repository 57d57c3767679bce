"""Issue-PR environments: from a repository's history to proven code tasks."""
