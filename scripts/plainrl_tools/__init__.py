"""What the commands in scripts/ and the programs in benchmarks/ share."""
