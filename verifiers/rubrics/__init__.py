"""Answers to open questions: rubrics, and judges that score by them once they have passed a test."""
