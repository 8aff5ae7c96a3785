"""Which names a model may have, and who alone adds versions under one."""

from console.catalog.models import ServedModel
from console.catalog.tombstones import require_free_name
from console.repositories.models import Repository
from signalbox.program.errors import InvalidRequest
from signalbox.wire.names import MODEL_NAME, RESERVED_MODEL_NAMES


def check_name(name: str) -> None:
    """Return for a name that a model may have. Raises :class:`InvalidRequest`, :class:`Conflict`."""
    if not MODEL_NAME.match(name):
        raise InvalidRequest(
            "A model's name is letters, digits, '.', '_' or '-', starts with a letter or digit,"
            " and has at most 100 characters."
        )
    if name.lower() in RESERVED_MODEL_NAMES and not ServedModel.objects.filter(name=name).exists():
        raise InvalidRequest(
            f"\"{name}\" cannot be a model's name: it stands in paths of the API where models' names stand. These are "
            f"reserved: {', '.join(sorted(RESERVED_MODEL_NAMES))}."
        )
    require_free_name(name)


def owned(name: str, repository: Repository | None) -> str:
    """Who alone adds versions to the model, as a sentence."""
    owner = f"repository {repository} brings" if repository is not None else "people add"
    return f"{name} is the name of a model whose versions {owner}."
