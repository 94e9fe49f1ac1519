"""Configuration: the repository's file, the environment, and what each role may hold."""
