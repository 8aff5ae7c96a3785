"""The program on a GPU host: supervisor, guard, runner, batching, placement, model cache."""
