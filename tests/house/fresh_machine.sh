#!/usr/bin/env bash
# Proves that a fresh machine can do it: runs the steps of docker/Dockerfile's target `cpu` in bare Debian roots made with debootstrap, from a
# clean clone, then ./dev demo and ./dev test there. Needs root, debootstrap and the package archives; exit code 77 where that is not possible.
set -euo pipefail

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly project suite=bookworm target=cpu bundle=/etc/ssl/certs/ca-certificates.crt

say() { printf 'fresh machine: %s\n' "$*"; }
skip() { say "skipped: $*"; exit 77; }

# Everything is mounted in a namespace of its own, which takes its mounts along whatever ends it.
if [ -z "${FRESH_MACHINE_FOLDER:-}" ]; then
  [ "$(id -u)" = 0 ] || skip "needs root"
  command -v debootstrap >/dev/null || skip "needs debootstrap"
  unshare --mount --fork true 2>/dev/null || skip "may not mount here"
  FRESH_MACHINE_FOLDER=$(mktemp -d "${FRESH_MACHINE_IN:-/tmp}/onebatch-fresh-XXXXXX")
  export FRESH_MACHINE_FOLDER
  trap 'rm -rf --one-file-system "$FRESH_MACHINE_FOLDER"' EXIT
  unshare --mount --propagation private --fork --kill-child "${BASH_SOURCE[0]}" || exit $?
  exit 0
fi

readonly folder=$FRESH_MACHINE_FOLDER roots=$FRESH_MACHINE_FOLDER/roots
mkdir -p "$roots"

archive_of_this_machine() {
  local sources=/etc/apt/sources.list.d/debian.sources
  if [ -f "$sources" ]; then awk '/^URIs:/ {print $2; exit}' "$sources"; else awk '$1 == "deb" && $2 ~ /debian\/?$/ {print $2; exit}' /etc/apt/sources.list; fi
}

make_base() {
  local base=$roots/base file archive
  archive=$(archive_of_this_machine)
  say "debootstrap $suite"
  debootstrap --variant=minbase $suite "$base" ${archive:+"$archive"} > "$folder/debootstrap.log" 2>&1 || { tail -3 "$folder/debootstrap.log"; skip "no package archive"; }
  [ ! -f /etc/apt/sources.list.d/debian.sources ] || rm -f "$base/etc/apt/sources.list"
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources /etc/apt/apt.conf.d/*proxy* /etc/resolv.conf /etc/hosts; do
    if [ -f "$file" ]; then cp --dereference "$file" "$base$file"; fi
  done
  # Not every sandbox lets apt change to its own user.
  echo 'APT::Sandbox::User "root";' > "$base/etc/apt/apt.conf.d/99sandbox"
}

# What the machine trusts. Once more after each step, since ca-certificates writes its own.
give_certificates() {
  if [ -f $bundle ]; then mkdir -p "$1${bundle%/*}" && cp --dereference $bundle "$1$bundle"; fi
}

mount_into() {
  mount -t proc proc "$1/proc"
  mount -t sysfs -o ro sysfs "$1/sys"
  mount --rbind /dev "$1/dev"
  mount -t tmpfs -o size=64m tmpfs "$1/dev/shm"   # what a container has
}

# The environment that the outside needs to reach its packages, and nothing else of it.
outside_environment() {
  env | grep -E '^(PIP_[A-Z_]+|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|https?_proxy|HTTPS?_PROXY|no_proxy|NO_PROXY)=' | grep -v '^PIP_FIND_LINKS=' || true
}

# run_in ROOT DIRECTORY COMMAND [NAME=VALUE ...]
run_in() {
  local root=$1 directory=$2 command=$3
  shift 3
  local outside
  mapfile -t outside < <(outside_environment)
  give_certificates "$root"
  chroot "$root" env -i HOME=/root TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${outside[@]}" "$@" \
    /bin/sh -c "mkdir -p '$directory' && cd '$directory' && $command" < /dev/null 3<&-
}

timed() {
  local begin=$SECONDS
  "$@"
  say "took $((SECONDS - begin)) s"
}

# One instruction of the Dockerfile in the root of its stage; `directory` and `variables` are the stage's.
instruction() {
  local word=$1 rest=$2 from to
  case $word in
    ENV) eval "variables+=($rest)" ;;
    WORKDIR) directory=$rest ;;
    RUN) say "[$stage] $rest"; timed run_in "$roots/$stage" "$directory" "$rest" "${variables[@]}" ;;
    COPY)
      if [ "$rest" = '. .' ]; then
        git -c safe.directory='*' clone --quiet --no-hardlinks "$project" "$roots/$stage$directory"
      else
        read -r from to <<< "${rest#--from=* }"
        local origin=${rest#--from=}
        mkdir -p "$roots/$stage${to%/*}"
        cp -a "$roots/${origin%% *}$from" "$roots/$stage$to"
      fi ;;
    CMD | '#'*) ;;
    *) say "the Dockerfile has an instruction that this test does not know: $word"; return 1 ;;
  esac
}

declare -A directory_of variables_of
directory=/ stage='' variables=()

# FROM PARENT AS STAGE: a copy of the parent's root with its directory and variables.
begin_stage() {
  local parent=$1
  stage=$3
  directory=${directory_of[$parent]:-/}
  eval "variables=(${variables_of[$parent]:-})"
  [ "$parent" != debian:12 ] || parent=base
  mkdir "$roots/$stage"
  # A root in use has the machine's /dev mounted in it: that is not to be copied.
  (cd "$roots/$parent" && tar --one-file-system -cf - .) | tar -C "$roots/$stage" -xf -
  mount_into "$roots/$stage"
}

end_stage() {
  [ -n "$stage" ] || return 0
  directory_of[$stage]=$directory
  variables_of[$stage]="${variables[*]@Q}"
}

run_dockerfile() {
  local word rest
  # Continued lines are joined first.
  while read -r -u 3 word rest; do
    case $word in
      '' | '#'*) continue ;;
      FROM)
        end_stage
        [ "$stage" != $target ] || break
        # shellcheck disable=SC2086
        begin_stage $rest ;;
      *) instruction "$word" "$rest" ;;
    esac
  done 3< <(sed -e ':a' -e '/\\$/N; s/\\\n//; ta' "$project/docker/Dockerfile")
}

make_base
run_dockerfile
begin_stage source AS fresh
for command in './dev demo' './dev demo' './dev test'; do
  say "$command, from a clean clone"
  timed run_in "$roots/fresh" "$directory" "$command" "${variables[@]}"
done
