"""Paths of our machine in the error texts of models."""

import pytest

from workers.runner.errortext import without_paths


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("/srv/models/half/1/x.txt; No such file", "<path>; No such file"),
        ("/vocab.txt; No such file", "<path>; No such file"),
        ("failed to open:/srv/a/b.txt", "failed to open:<path>"),
        ("cannot read (/srv/models/a)", "cannot read (<path>)"),
        ("file:///srv/models/a/1: denied", "<path>: denied"),
        ("at //srv/models/a", "at <path>"),
        ("ram://staged/1/x is gone", "<path> is gone"),
        ("path=/srv/models/a, mode r", "path=<path>, mode r"),
        ('File "/home/me/my models/net.py", line 30, in call', "File <path>, line 30, in call"),
        ("no file '/srv/a b/c'", "no file <path>"),
        ("~/models/a is not there", "<path> is not there"),
        (
            "SavedModel not at: /m/half/1/{saved_model.pbtxt|saved_model.pb}",
            "SavedModel not at: <path>|saved_model.pb}",
        ),
        ("at '/device:GPU:0/srv/x'", "at <path>"),
        ("/jobs:1/x, /device:/srv and /gpu/0", "<path>:1/x, <path>:<path> and <path>"),
        ("[Errno 2] No such file or directory: '/srv/x'", "[Errno 2] No such file or directory: <path>"),
    ],
)
def test_no_path_is_shown(said: str, shown: str) -> None:
    assert without_paths(said) == shown
    assert without_paths(shown) == shown


@pytest.mark.parametrize(
    "said",
    [
        "Matrix size-incompatible: In[0]: [1,3], In[1]: [4,2]",
        "{{node model/dense/MatMul}} a / b is 1/2",
        "expected [2]/[3] of https://host/page and km/h",
        "either/or, and // twice",
        "assigned to /job:worker/replica:0/task:0/device:GPU:0 but available are [ /job:localhost/device:CPU:0 ].",
        "/device:XLA_CPU:0, /gpu:1, /CPU:0, '/job:ps/task:3' and \"/device:GPU:*\"",
    ],
)
def test_what_is_no_path_stays(said: str) -> None:
    assert without_paths(said) == said
