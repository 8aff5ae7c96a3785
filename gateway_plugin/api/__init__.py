"""What a request asks for, and what its answer shows: paths, job bodies, preferences, views of models."""
