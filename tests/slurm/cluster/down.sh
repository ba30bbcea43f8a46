#!/usr/bin/env bash
# Stop the cluster that up.sh started, its jobs first, each daemon by its own pid file. `LAB` as in up.sh.
# WIPE=1 removes its state and its configuration too; the packages stay.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/settings.sh"
[ "$(id -u)" = 0 ] || fail "this needs root"
[ "$(configured)" = "$LAB" ] || fail "there is no cluster of ours in $CONF with its state in $LAB"

if process_of "$LAB/run/slurmctld.pid" >/dev/null && scontrol ping >/dev/null 2>&1; then
  scancel --user=root 2>/dev/null || true
  for _ in $(seq 100); do [ -n "$(squeue -h 2>/dev/null)" ] || break; sleep 0.2; done
fi
for file in "$LAB"/run/slurmd-*.pid "$LAB"/run/{slurmctld,slurmdbd,mariadbd}.pid /run/munge/munged.pid; do stop "$file"; done
if [ "${WIPE:-0}" = 1 ]; then rm -rf "$LAB" $CONF /etc/slurm/slurmdbd.conf; fi
say "down"
