#!/bin/sh
# Say of a job id: running, success or failed. While the cluster does not answer, a job counts as running.
if state=$(squeue --noheader --states=all --jobs="$1" --format=%T 2>&1); then
  case $state in
    COMPLETED) echo success ;;
    BOOT_FAIL | CANCELLED | DEADLINE | FAILED | NODE_FAIL | OUT_OF_MEMORY | PREEMPTED | TIMEOUT | "") echo failed ;;
    *) echo running ;;
  esac
else
  case $state in *"Invalid job id"*) echo failed ;; *) echo running ;; esac
fi
