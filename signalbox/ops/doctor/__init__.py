"""``signalbox doctor``: looks at a deployment and says what is weak, why it matters and how to mend it."""
