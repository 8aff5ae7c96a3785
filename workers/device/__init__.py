"""One GPU: what there is, who else uses it, and the lease, guard, runner and serving of it put together."""
