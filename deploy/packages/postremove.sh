#!/bin/sh
set -e
# The configuration and the user stay: files of jobs may belong to it.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
