#!/bin/sh
# Runs on one machine at a time, with psql and no other part of forge. Start it on every
# candidate machine: one of them writes a row every second.
#
#   DATABASE_URL=postgres://... ./nightly.sh NODE-ID
#
# The login needs: GRANT EXECUTE ON FUNCTION forge_role_campaign, forge_role_renew,
# forge_role_step_down, forge_role_fence TO ...
set -u
role=nightly node=$1 term=''

ask() { psql -XAtq -v ON_ERROR_STOP=1 "$DATABASE_URL" -c "$1"; }

step_down() {
	[ -z "$term" ] || ask "SELECT forge_role_step_down('$role', $term)" >/dev/null
	term=''
}
trap 'step_down; exit 0' INT TERM

while :; do
	term=$(ask "SELECT forge_role_campaign('$role', '$node', '15 seconds')")
	# Continue while renew returns true. Otherwise the lease has expired, or another node is to lead.
	while [ -n "$term" ] && [ "$(ask "SELECT forge_role_renew('$role', $term)")" = t ]; do
		# One -c is one transaction: after the end of the term the fence fails, and so does the write.
		ask "SELECT forge_role_fence('$role', $term); INSERT INTO reports (node, term) VALUES ('$node', $term)" >/dev/null
		sleep 1
	done
	step_down
	sleep 1
done
