#!/usr/bin/env bash
# Start a throw-away SLURM cluster on this machine: `sudo tests/slurm/cluster/up.sh`; down.sh stops it.
# It needs root, and Debian 12 or Ubuntu with apt: install.sh installs what is missing. No systemd, no cgroups.
# Running it again starts what is down, and restarts all if a setting changed. It refuses to touch a cluster that is not its
# own. No step of it waits for ever; the daemons' logs say why one failed.
#   LAB       folder of state, logs and pid files          (default: rollmake-cluster in the temporary folder)
#   NODES     number of nodes, n1, n2, ...; each a slurmd  (2)
#   CPUS      processors that each node says it has        (8)
#   DB        1: with accounting (mariadb, slurmdbd, sacct); 0: without (0)
#   KILLWAIT  seconds from SIGTERM to SIGKILL              (10; SLURM's default is 30)
#   MINJOBAGE seconds that an ended job stays in squeue    (300)
#   REQUEUE   1: jobs of a lost node start again           (1)
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/settings.sh"
NODES=${NODES:-2} CPUS=${CPUS:-8} DB=${DB:-0} KILLWAIT=${KILLWAIT:-10} MINJOBAGE=${MINJOBAGE:-300} REQUEUE=${REQUEUE:-1}
HOST=$(uname -n) HOST=${HOST%%.*}

DB=$DB "$here/install.sh"
other=$(configured)
if [ -n "$other" ] && [ "$other" != "$LAB" ]; then
  for file in "$other"/run/*.pid; do
    ! process_of "$file" >/dev/null || fail "another one is up; LAB=$other $here/down.sh stops it"
  done
fi

start_munge() {
  install -d -o munge -g munge -m 755 /run/munge
  if [ ! -s /etc/munge/munge.key ]; then
    (umask 077; head -c 256 /dev/urandom >/etc/munge/munge.key)
    chown munge: /etc/munge/munge.key
  fi
  process_of /run/munge/munged.pid >/dev/null ||
    setpriv --reuid=munge --regid=munge --clear-groups munged --force >"$LAB/log/munged.out" 2>&1
  try_for 10 sh -c 'munge -n </dev/null | unmunge'
}

sql() { mariadb --no-defaults --socket="$LAB/db/socket" -uroot "$@"; }

start_database() {
  if ! process_of "$LAB/run/mariadbd.pid" >/dev/null; then
    mkdir -p "$LAB/db" /run/mysqld
    [ -d "$LAB/db/mysql" ] ||
      mariadb-install-db --no-defaults --user=root --datadir="$LAB/db" --skip-test-db >"$LAB/log/mariadb.log" 2>&1
    setsid mariadbd --no-defaults --user=root --datadir="$LAB/db" --socket="$LAB/db/socket" --skip-networking \
      --innodb-buffer-pool-size=64M --innodb-lock-wait-timeout=900 </dev/null >>"$LAB/log/mariadb.log" 2>&1 &
    echo $! >"$LAB/run/mariadbd.pid"
    try_for 60 sql -e 'SELECT 1'
  fi
  sql -e "CREATE DATABASE IF NOT EXISTS accounting; CREATE USER IF NOT EXISTS slurm@localhost IDENTIFIED BY 'slurm';
          GRANT ALL ON accounting.* TO slurm@localhost"
  # slurmdbd knows no option for the socket, only this place.
  ln -sfn "$LAB/db/socket" /run/mysqld/mysqld.sock
  install -m 600 /dev/null /etc/slurm/slurmdbd.conf
  cat >/etc/slurm/slurmdbd.conf <<END
$MARK
AuthType=auth/munge
DbdHost=localhost
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=slurm
StorageLoc=accounting
LogFile=$LAB/log/slurmdbd.log
PidFile=$LAB/run/slurmdbd.pid
END
  process_of "$LAB/run/slurmdbd.pid" >/dev/null || slurmdbd
}

accounting_lines() {
  if [ "$DB" = 1 ]; then
    printf '%s\n' AccountingStorageType=accounting_storage/slurmdbd AccountingStorageHost=localhost
  else
    echo AccountingStorageType=accounting_storage/none
  fi
}

node_lines() {
  local memory=$(($(awk '/MemTotal/ {print int($2 / 1024)}' /proc/meminfo) * 9 / 10)) i
  for i in $(seq "$NODES"); do
    echo "NodeName=n$i NodeHostname=$HOST NodeAddr=127.0.0.1 Port=$((17000 + i)) CPUs=$CPUS RealMemory=$memory"
  done
}

# `low` and `lowcancel` give way to `main`: their jobs are requeued, or cancelled. `MaxTime` is in minutes.
write_conf() {
  cat <<END
$MARK
ClusterName=rollmake
SlurmctldHost=$HOST(127.0.0.1)
SlurmctldPort=17000
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=256
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=$REQUEUE
MinJobAge=$MINJOBAGE
KillWait=$KILLWAIT
SlurmdTimeout=20
ReturnToService=2
MaxArraySize=10001
MaxJobCount=20000
StateSaveLocation=$LAB/state
SlurmdSpoolDir=$LAB/spool/%n
SlurmctldPidFile=$LAB/run/slurmctld.pid
SlurmdPidFile=$LAB/run/slurmd-%n.pid
SlurmctldLogFile=$LAB/log/slurmctld.log
SlurmdLogFile=$LAB/log/slurmd-%n.log
JobCompType=jobcomp/none
$(accounting_lines)
$(node_lines)
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=10
PartitionName=low Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE
PartitionName=lowcancel Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=CANCEL
END
}

start_slurm() {
  # A job step does not inherit SLURM_CONF, so the file must lie at its usual place.
  write_conf >"$LAB/slurm.conf"
  if ! cmp -s "$LAB/slurm.conf" $CONF; then
    stop "$LAB/run/slurmctld.pid"
    local file; for file in "$LAB"/run/slurmd-*.pid; do stop "$file"; done
    cp "$LAB/slurm.conf" $CONF
  fi
  if [ "$DB" = 1 ]; then
    try_for 30 sacctmgr -n list cluster
    sacctmgr -n list cluster format=cluster%20 | grep -qw rollmake || sacctmgr -i add cluster rollmake >/dev/null
  fi
  process_of "$LAB/run/slurmctld.pid" >/dev/null || slurmctld -i
  try_for 30 scontrol ping
  local i
  for i in $(seq "$NODES"); do
    mkdir -p "$LAB/spool/n$i"
    process_of "$LAB/run/slurmd-n$i.pid" >/dev/null || slurmd -N "n$i"
  done
  for i in $(seq "$NODES"); do
    scontrol update nodename="n$i" state=resume 2>/dev/null || true
    try_for 30 sh -c "sinfo -h -N -n n$i -p main -o %t | grep -qxE 'idle|mix|alloc|comp'"
  done
}

mkdir -p "$LAB"/{state,spool,log,run} /etc/slurm
chmod 755 "$LAB"
start_munge
[ "$DB" = 0 ] || start_database
start_slurm
touch "$LAB/started"  # For who asks whether the cluster ever ran.
say "up: $NODES node(s), $([ "$DB" = 1 ] && echo with || echo without) accounting, state in $LAB"
