"""Whether a request becomes a job: who calls, what its account holds, what the queues take."""
