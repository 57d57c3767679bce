"""From a problem to programs: tools, verifier and solution, and the SQL in them."""
