"""``make production``: what ``docker-compose.yml`` declares, on this machine, without a container engine.

Each service runs in namespaces of its own with the command, environment, secrets, health check and order of that file.
"""
