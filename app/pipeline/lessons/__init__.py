"""What jobs learn about a repository, and what later jobs are shown of it."""
