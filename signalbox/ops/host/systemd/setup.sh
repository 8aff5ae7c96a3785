#!/bin/sh
# Sets a machine up as a host of Signalbox: `signalbox host add` sends this with the files beside it and runs it as root.
# May run again: a release that is there stays, and so does the key. Lines for the sender go to stdout, others to stderr.
set -eu
umask 077
here=$(cd "$(dirname "$0")" && pwd)
. "$here/plan.sh"
unit=signalbox-host.service

say() { echo "$*" >&2; }
fail() { say "refused: $*"; exit 1; }

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$python is not Python 3.11 or newer"
if [ "$starts" = yes ] && [ ! -d /run/systemd/system ]; then
    fail "systemd does not run here; with --no-start everything but the start is done"
fi

# ---- the user, and folders
id -u "$user" >/dev/null 2>&1 || useradd --system --home-dir "$folder" --shell /usr/sbin/nologin "$user"
(umask 022 && mkdir -p "$folder/releases")
mkdir -p "$folder/etc" "$folder/data" "$folder/cache"
chown "$user" "$folder/etc" "$folder/data" "$folder/cache"

# ---- the release: an environment by itself, whole or made anew
release="$folder/releases/$release"
if [ ! -e "$release/whole" ]; then
    say "installing $wheel into $release"
    rm -rf "$release"
    umask 022
    "$python" -m venv "$release"
    if [ "$inherits" = yes ]; then
        "$python" -c 'import sysconfig; print("import sys; sys.path.append(%r)" % sysconfig.get_path("purelib"))' \
            >"$(echo "$release"/lib/python*/site-packages)/inherited.pth"
        "$release/bin/python" -m pip install -q --disable-pip-version-check --no-index --no-deps "$here/$wheel" >&2
    elif [ -e "$here/requirements.txt" ]; then
        "$release/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r "$here/requirements.txt" >&2
        "$release/bin/python" -m pip install -q --disable-pip-version-check --no-deps "$here/$wheel" >&2
    else
        "$release/bin/python" -m pip install -q --disable-pip-version-check "$here/$wheel[$extra]" >&2
    fi
    : >"$release/whole"
    umask 077
fi

# ---- settings, and the key: its seed last, so that who finds one finds its name
put() { # put FILE: replace a file of etc/ at once, and say whether it changed
    if cmp -s "$here/$1" "$folder/etc/$1"; then return 1; fi
    cp "$here/$1" "$folder/etc/.$1" && chown "$user" "$folder/etc/.$1" && mv "$folder/etc/.$1" "$folder/etc/$1"
}
changed=no
if put host.env; then changed=yes; fi
if [ -e "$here/nats_ca.pem" ] && put nats_ca.pem; then changed=yes; fi
if [ "$replaces" = yes ]; then rm -f "$folder/etc/nats_seed"; fi
if [ -e "$folder/etc/nats_seed" ]; then
    echo "key=kept $(sed -n 's/^SIGNALBOX_NATS_USER=//p' "$folder/etc/key.env")"
elif [ ! -e "$here/nats_seed" ]; then
    fail "it has no key any more; with --new-key it gets another"
else
    put key.env || true
    put nats_seed
    echo "key=installed"
    changed=yes
fi

# ---- what runs
ln -sfn "$release" "$folder/.current" && mv -fT "$folder/.current" "$folder/current"
if ! cmp -s "$here/$unit" "$units/$unit"; then
    cp "$here/$unit" "$units/.$unit" && chmod 644 "$units/.$unit" && mv "$units/.$unit" "$units/$unit"
    changed=yes
fi
if [ "$starts" = no ]; then
    say "not started: systemctl daemon-reload && systemctl enable --now $unit"
    exit 0
fi
systemctl daemon-reload
systemctl enable -q "$unit"
if ! systemctl is-active -q "$unit"; then
    systemctl start "$unit"
elif [ "$changed" = yes ]; then
    say "it runs with settings from before; when it may stop for a moment: systemctl restart $unit"
else
    systemctl reload "$unit"
fi
systemctl is-active -q "$unit" || fail "it does not run: journalctl -u $unit"
