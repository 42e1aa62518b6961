"""Experience: simulators, logs, demonstrations, and what a policy is worth there."""
