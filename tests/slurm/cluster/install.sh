#!/usr/bin/env bash
# Install the packages of a SLURM cluster with apt, if they are missing. It needs root, and Debian 12 or Ubuntu.
# Exits with 1 and says why if they cannot be had here; no step of it waits for ever.
#   DB     1: with those of the accounting (mariadb, slurmdbd)  (0)
#   WITHIN seconds that apt may take in all                     (420)
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/settings.sh"
[ "$(id -u)" = 0 ] || fail "this needs root: it installs packages, starts daemons and writes /etc/slurm"
if [ -e $CONF ] && ! grep -qF "$MARK" $CONF; then fail "$CONF belongs to another cluster; nothing was changed"; fi
getent ahostsv4 localhost >/dev/null || fail "SLURM finds no host here: no network interface has an address beside the loopback"

wanted=(munge slurmctld slurmd slurm-client) missing=()
[ "${DB:-0}" = 0 ] || wanted+=(slurmdbd slurm-wlm-mysql-plugin mariadb-server)
for package in "${wanted[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
command -v apt-get >/dev/null || fail "this needs apt-get, to install ${missing[*]}"
say "installing ${missing[*]}"

log=$(mktemp) policy=/usr/sbin/policy-rc.d ours=
tidy() { rm -f "$log" ${ours:+"$policy"}; }
trap tidy EXIT
# Debian's packages start their services; this file forbids it.
if [ ! -e $policy ]; then ours=1; printf '#!/bin/sh\nexit 101\n' >$policy; chmod 755 $policy; fi
apt() {
  DEBIAN_FRONTEND=noninteractive timeout --kill-after=10 $((${WITHIN:-420} - SECONDS)) apt-get -qq \
    -o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 -o DPkg::Lock::Timeout=60 "$@" \
    >>"$log" 2>&1 </dev/null || { tail -n 20 "$log" >&2; fail "apt-get $1 failed or took too long"; }
}
apt update
apt install -y --no-install-recommends "${missing[@]}"
