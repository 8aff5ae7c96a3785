"""The process that runs TensorFlow, and what supervisor and runner say to each other."""
