# Read by up.sh and down.sh: where the cluster keeps its state, and small helpers.
LAB=${LAB:-${TMPDIR:-/tmp}/rollmake-cluster}
CONF=/etc/slurm/slurm.conf
MARK="# throw-away cluster of rollmake's tests"

say() { echo "cluster: $*"; }
fail() { echo "cluster: $*" >&2; exit 1; }

# The process of a pid file, if it lives.
process_of() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null && cat "$1"; }

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
