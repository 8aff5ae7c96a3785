"""``make images``: the images of deploy/Dockerfile, built without a container engine and started from their roots."""
