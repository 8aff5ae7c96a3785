"""What a repository is called by its last listing: one word for pages and REST."""

from console.board.conditions import Condition
from console.repositories.models import Listing, Repository


def listing_of(repository: Repository) -> Listing | None:
    """Its last listing; None before the first."""
    return getattr(repository, "listing", None)


def of(repository: Repository) -> Condition:
    """From what was decided on it, and what its last listing found."""
    listing = listing_of(repository)
    if not repository.is_noticed:
        return Condition("disabled", "not noticed", "what is new there is not taken; what was taken stays")
    if listing is None or listing.tried_at is None:
        return Condition("pending", "not listed yet", "the controller lists it within some seconds of starting")
    if listing.error:
        return Condition("failed", "cannot be listed", listing.error)
    if listing.alarm:
        return Condition("late", "nothing is withdrawn", listing.alarm)
    if not listing.models_found:
        return Condition("waiting", "no models", "no folder with a saved_model.pb lies there")
    return Condition("ok", "listed")
