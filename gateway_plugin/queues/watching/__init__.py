"""Who watches queues, in which groups, and who has been given which item until it is committed."""
