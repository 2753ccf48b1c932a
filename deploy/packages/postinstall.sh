#!/bin/sh
set -e
if ! getent passwd forge >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/forge --shell /usr/sbin/nologin forge
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# An upgrade replaces a running node: it hands its roles over, drains its jobs and starts again.
	# It may take as long as a migration, and fail while the database is away: the unit starts it
	# again, and the upgrade of the package is complete.
	systemctl try-restart --no-block forge.service || echo 'forge: not restarted; see systemctl status forge' >&2
fi
if [ ! -e /etc/forge/forge.toml ]; then
	echo 'forge: write /etc/forge/forge.toml (see forge init and man forge), then: systemctl enable --now forge'
fi
