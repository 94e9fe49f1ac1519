"""Plan, work, verify and publish: what happens in a job."""
