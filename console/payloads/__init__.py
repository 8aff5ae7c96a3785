"""Inputs and outputs of jobs, read for operators who may: bounded, audited, never kept."""
