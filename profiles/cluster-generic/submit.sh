#!/bin/sh
# Give a job script to the cluster and print the job's id. sbatch also reads SBATCH_PARTITION and SBATCH_ACCOUNT.
set -eu
threads=$1 megabytes=$2 minutes=$3 script=$4
mkdir -p .snakemake/cluster_logs
exec sbatch --parsable --job-name=rollmake --output=.snakemake/cluster_logs/%j.log --export=ALL \
  --cpus-per-task="$threads" --mem="$megabytes" --time="$minutes" "$script"
