"""The GitHub Action: its steps receive, solve and publish."""
