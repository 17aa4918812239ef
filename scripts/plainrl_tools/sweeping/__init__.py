"""Parts of scripts/sweep.py: the plan of its runs, the claims on them, and clusters (Ray, Slurm).

Whether a run is done or goes on is decided in sweep.py."""
