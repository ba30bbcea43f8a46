# Read by up.sh and down.sh: where the cluster keeps its state, and small helpers.
LAB=${LAB:-${TMPDIR:-/tmp}/rollmake-cluster}
CONF=/etc/slurm/slurm.conf
PATH=$PATH:/usr/sbin:/sbin
MARK="# throw-away cluster of rollmake's tests"

say() { echo "cluster: $*"; }
fail() { echo "cluster: $*" >&2; exit 1; }

# The folder of the cluster of ours that is configured, if there is one.
configured() { if grep -qsF "$MARK" $CONF; then sed -n 's|^StateSaveLocation=\(.*\)/state$|\1|p' $CONF; fi; }

# The process of a pid file, if it lives. One that was killed may still have an entry for a while, as a zombie.
process_of() {
  local pid; pid=$(cat "$1" 2>/dev/null) && grep -qs '^State:.[^ZX]' "/proc/$pid/status" && echo "$pid"
}

# try_for SECONDS COMMAND...: repeat the command until it succeeds.
try_for() {
  local until=$((SECONDS + $1)); shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $until ] || fail "gave up waiting for: $*"
    sleep 0.2
  done
}

# stop PIDFILE: end the daemon of a pid file, politely for ten seconds.
stop() {
  local pid; pid=$(process_of "$1") || return 0
  kill "$pid"
  for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || return 0; sleep 0.2; done
  kill -9 "$pid"
}
