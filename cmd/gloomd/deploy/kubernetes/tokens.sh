#!/bin/sh
# Makes a token for submitters, for workers and for those who watch, unless the file is
# there, and the list of them that gloomd reads.
set -eu
umask 077
cd "$(dirname "$0")"
: > tokens
for scope in submit work watch; do
    [ -s $scope.token ] || head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > $scope.token
    printf '%s %s\n' "$(cat $scope.token)" $scope >> tokens
done
