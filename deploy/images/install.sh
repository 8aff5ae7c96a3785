#!/bin/sh
# deploy/Dockerfile: the packages of a lock into /opt/venv, by a pip that does not stay. Wheels alone: nothing compiles.
set -eu
python3.11 -m venv /tmp/pip
python3.11 -m venv --without-pip /opt/venv
/tmp/pip/bin/pip --python /opt/venv/bin/python --disable-pip-version-check install --no-warn-script-location \
    --root-user-action ignore --quiet --require-hashes --only-binary :all: --requirement "$(dirname "$0")/$1.txt"
rm -rf /tmp/pip
