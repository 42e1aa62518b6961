"""Where sweeps, frontiers and coverage sets are computed: in this process, or by workers of a cluster."""
