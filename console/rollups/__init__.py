"""Figures of ended jobs by the minute, model, version and account; added up by the projector, each job once."""
