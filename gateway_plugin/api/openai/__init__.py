"""Files and batches as OpenAI's clients have them (docs/batches.md)."""
