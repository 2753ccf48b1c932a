#!/bin/sh
set -e
if ! getent passwd forge >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/forge --shell /usr/sbin/nologin forge
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# An upgrade replaces a running node: it hands its roles over, drains its jobs and starts again.
	systemctl try-restart forge.service
fi
if [ ! -e /etc/forge/forge.toml ]; then
	echo 'forge: write /etc/forge/forge.toml (see forge init and man forge), then: systemctl enable --now forge'
fi
