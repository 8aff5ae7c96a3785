"""``python -m workers.sandbox``: confines itself and says what is active."""

from workers.sandbox.confine import main

if __name__ == "__main__":
    raise SystemExit(main())
