"""``signalbox doctor``: examines a deployment and reports what is weak, why it matters and how to fix it."""
