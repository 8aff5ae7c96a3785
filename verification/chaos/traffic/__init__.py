"""Accounts that call the front and write down what they were answered."""
