"""What benchmarks run on and measure with: a test bed, a load generator, the cost of processes."""
