"""Saved views: the filter of a list under a name, of one operator or shared with all."""
