#!/usr/bin/env bash
N=$1; cd /tmp/ci$N/main
(date; PYTEST_ADDOPTS="--durations=60" .ci/run; echo "rc $?"; date) > /tmp/run/ci$N.log 2>&1
