#!/bin/sh
# Moves all work from some nodes to others: ./switch.sh green-1 green-2 -- blue-1 blue-2
#
# Start the green nodes first. The blue nodes hand over their roles and finish their jobs; then stop them. If something is
# wrong with green, `forge node undrain` makes blue work again.
set -eu
while [ "$1" != -- ]; do
	forge node show "$1" >/dev/null # fails if it has not joined
	shift
done
shift
for node in "$@"; do
	forge node drain "$node" --wait --timeout 10m
done
forge leader status
