"""What operators decide of results that go out: subscriptions, webhooks, hosts that jobs may name, batches of files."""
