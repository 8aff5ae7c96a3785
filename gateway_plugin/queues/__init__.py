"""The queue service: what a queue keeps, who reads it, and how it is given out. For the gateway and its forwarder."""
