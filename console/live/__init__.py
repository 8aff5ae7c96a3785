"""The live board: what happens now, held in memory, fed by NATS, pushed to browsers in sequence."""
