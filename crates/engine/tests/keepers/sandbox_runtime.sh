#!/bin/sh
# Stands in for gVisor's runsc in tests: containers of runc, with the command line and the rules of runsc. It refuses a container
# whose sandbox does not run, and a second sandbox. The process ID that it reports of a container is that of the sandbox, and only
# `wait` knows its exit code. Calls are logged in a file beside the script. Files beside it, which tests write, let it fail.

root=/nowhere log=/dev/null
echo "$*" | sed 's/--root [^ ]* --log [^ ]* --log-format json //' >> "$0.calls"
while [ $# -gt 0 ]; do
    case $1 in
    --root) root=$2; shift 2 ;;
    --log) log=$2; shift 2 ;;
    --log-format) shift 2 ;;
    --*) shift ;;
    *) break ;;
    esac
done
verb=$1
[ "$verb" = features ] && exec runc features
shift
state=$root/stand-in
mkdir -p "$state"

fail() {
    echo "{\"level\":\"error\",\"msg\":\"$1\"}" >> "$log"
    exit 128
}

real_runc() {
    runc --root "$root/runc" --log "$log" --log-format json "$@"
}

annotation() {
    grep -o "\"io.kubernetes.cri.$1\": *\"[^\"]*\"" "$bundle/config.json" | cut -d '"' -f 4
}

sandbox_lives() {
    [ -s "$state/sandbox" ] && kill -0 "$(cat "$state/sandbox")" 2> /dev/null
}

# Flags, the container ID, and up to one argument.
detach='' bundle='' pid_file='' internal='' console='' process='' pid='' all='' resources=''
while [ $# -gt 0 ]; do
    case $1 in
    --detach) detach=$1; shift ;;
    --bundle) bundle=$2; shift 2 ;;
    --pid-file) pid_file=$2; shift 2 ;;
    --internal-pid-file) internal=$2; shift 2 ;;
    --console-socket) console="--console-socket $2"; shift 2 ;;
    --process) process=$2; shift 2 ;;
    --pid) pid=$2; shift 2 ;;
    --all) all=$1; shift ;;
    --resources) resources=$2; shift 2 ;;
    --force) shift ;;
    *) break ;;
    esac
done
id=$1 signal=$2

case $verb in
run)
    [ -n "$detach" ] || fail "the keeper detaches"
    case $(annotation container-type) in
    sandbox)
        [ "$(annotation sandbox-id)" = "$id" ] || fail "the sandbox has another ID"
        [ ! -e "$state/sandbox" ] || fail "the sandbox exists already"
        grep -q '"hostname": *"[^"]' "$bundle/config.json" || fail "the sandbox has no host name"
        real_runc run --detach --bundle "$bundle" --pid-file "$pid_file" "$id" || exit 1
        cp "$pid_file" "$state/sandbox"
        echo "$id" > "$state/sandbox-id"
        [ ! -e "$0.fails" ] || fail "the sandbox fails"
        # It may end between the check and the signal.
        while [ -e "$0.dies" ] && sandbox_lives; do kill -KILL "$(cat "$state/sandbox")" 2> /dev/null || true; done
        ;;
    container)
        sandbox_lives || fail "cannot load sandbox: it does not run"
        [ -z "$console" ] || fail "the stand-in has no terminals"
        (
            real_runc run --bundle "$bundle" --pid-file "$state/$id.pid" "$id"
            echo $? > "$state/$id.code"
            mv "$state/$id.code" "$state/$id.exit"
        ) &
        until [ -s "$state/$id.pid" ]; do
            [ ! -e "$state/$id.exit" ] || exit 1
            sleep 0.01
        done
        cp "$state/sandbox" "$pid_file"
        ;;
    *) fail "no container-type" ;;
    esac
    ;;
wait)
    until [ -e "$state/$id.exit" ]; do
        if ! sandbox_lives; then
            # Both may have ended since the condition of the loop.
            [ ! -e "$state/$id.exit" ] || break
            real_runc kill "$id" KILL
            fail "sandbox is not running"
        fi
        sleep 0.02
    done
    # Late, as that of a container whose sandbox ends at the same time.
    while [ -e "$0.waits" ] && sandbox_lives; do sleep 0.02; done
    [ ! -e "$0.waits" ] || sleep 0.3
    echo "{\"id\":\"$id\",\"exitStatus\":$(cat "$state/$id.exit")}"
    ;;
exec)
    sandbox_lives || fail "sandbox is not running"
    # shellcheck disable=SC2086
    real_runc exec --detach --process "$process" --pid-file "$pid_file" $console "$id" || exit 1
    echo $(($(cat "$pid_file") + 5000000)) > "$internal"
    ;;
kill)
    case $signal in 3[2-9] | [4-6][0-9]) fail "bad signal: $signal" ;; esac
    while [ -e "$0.hangs" ] && sandbox_lives; do sleep 0.02; done
    [ ! -e "$0.hangs" ] || fail "sandbox is not running"
    if [ -n "$pid" ]; then
        kill -"$signal" $((pid - 5000000)) || fail "no such process"
    else
        # shellcheck disable=SC2086
        real_runc kill $all "$id" "$signal" || exit 1
    fi
    ;;
update) real_runc update --resources "$resources" "$id" || exit 1 ;;
delete)
    if [ "$(cat "$state/sandbox-id" 2> /dev/null)" = "$id" ]; then
        [ ! -e "$0.refuses-delete" ] || { echo "the sandbox cannot be deleted" >&2; exit 128; }
        while [ -e "$0.blocks-delete" ]; do sleep 0.02; done
    fi
    real_runc delete --force "$id" || exit 1
    [ "$(cat "$state/sandbox-id" 2> /dev/null)" != "$id" ] || rm -f "$state/sandbox"
    ;;
*) fail "unknown command $verb" ;;
esac
