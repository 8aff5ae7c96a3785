"""Operations on jobs that all dialects share: find, describe, wait, forecast, answer."""
