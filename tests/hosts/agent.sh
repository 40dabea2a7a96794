#!/bin/sh
# The launcher's way into a test host, where others have ssh: agent.sh ADDRESS COMMAND … runs the command as host "host-N", in its own network,
# with its own name and shared memory. HOSTS names the set of namespaces, SHARED_MEMORY a size.
address=$1
shift
number=${address##*.}
# shellcheck disable=SC2016  # what is in quotes is for the inner shell
exec ip netns exec "$HOSTS-$number" unshare --uts --mount sh -c '
  hostname "host-$0"
  mount -t tmpfs -o size="$SHARED_MEMORY" tmpfs /dev/shm
  exec sh -c "$*"' "$number" "$@"
