"""Failures that are alike are one group."""

import pytest

from console.jobs.groups import LENGTH, fingerprint, normalised


@pytest.mark.parametrize(
    ("message", "alike"),
    [
        ('Input "x" has shape [3, 28], not [28].', 'Input "image" has shape [64, 30], not [29].'),
        ("Job 0190f3aa-1234-7abc-8def-001122334455 was lost.", "Job 01a0f3ab-9934-7abc-8def-ff1122334455 was lost."),
        ("Read fault at 0x7f12ab.", "Read fault at 0xFFFF0000."),
        ("It took 1.5 s, not 'fast'.", "It took 200 s, not 'slow and more'."),
    ],
)
def test_numbers_ids_and_quoted_parts_make_no_difference(message: str, alike: str) -> None:
    assert fingerprint("model_error", message) == fingerprint("model_error", alike)
    assert len(fingerprint("model_error", message)) == LENGTH


def test_words_and_codes_make_a_difference() -> None:
    assert fingerprint("model_error", "No such op.") != fingerprint("model_error", "No such file.")
    assert fingerprint("model_error", "No such op.") != fingerprint("out_of_memory", "No such op.")
    assert normalised("It can't run: the decade's facade isn't 'here'.") == "It can't run: the decade's facade isn't …."


def test_what_has_no_error_has_no_group() -> None:
    assert not fingerprint("", "")
