#!/bin/sh
set -e
# dpkg says remove, rpm how many versions stay. An upgrade restarts the node afterwards.
case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now forge.service || echo 'forge: not stopped; see systemctl status forge' >&2
	fi
	;;
esac
