"""An ECS in memory (moto), and a stand-in for Fargate."""
