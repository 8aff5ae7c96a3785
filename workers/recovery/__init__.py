"""Repairs the state that crashes leave behind."""
