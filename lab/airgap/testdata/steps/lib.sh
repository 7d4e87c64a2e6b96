# What the steps share. The shell is busybox's, so that the site needs no other.

fail() {
	echo "airgap: $*"
	exit 1
}

# must_fail WORDS COMMAND... fails unless the command fails and says WORDS.
must_fail() {
	words=$1
	shift
	if "$@" >/tmp/refusal 2>&1; then
		fail "this should have failed: $*"
	fi
	grep -qF -- "$words" /tmp/refusal || fail "'$*' failed, but without the words '$words': $(cat /tmp/refusal)"
	echo "as it should, '$*' failed: $(grep -F -m 1 -- "$words" /tmp/refusal)"
}

# await COMMAND... tries a command until it succeeds, and fails after 60 s.
await() {
	for _ in $(seq 300); do
		if "$@" >/tmp/attempt 2>&1; then
			return
		fi
		sleep 0.2
	done
	fail "this has not happened within 60 s: $*: $(cat /tmp/attempt)"
}

unpacked=/carried/$RELEASE
image=docker.io/library/podcount:$VERSION

# start_containerd starts the runtime of a node, without the part that only a kubelet needs.
start_containerd() {
	mkdir -p /etc/containerd
	printf 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n' >/etc/containerd/config.toml
	trap show_logs EXIT
	containerd --log-level error >/tmp/containerd.log 2>&1 &
	await ctr version
}

# run_image NAME ARGUMENTS... runs podcount as a container, as restricted as the Deployment's. $more has more options. The
# site has no controllers of cgroups, so there are no limits of CPU and memory.
run_image() {
	name=$1
	shift
	# shellcheck disable=SC2046,SC2086
	ctr -n k8s.io run --rm --net-host --cgroup '' --cpu-shares 0 --read-only --seccomp $(dropped) ${more:-} \
		"$image" "$name" /podcount "$@"
}

# dropped prints the options that take away the capabilities that ctr gives by default.
dropped() {
	for name in AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE NET_RAW SETFCAP SETGID SETPCAP \
		SETUID SYS_CHROOT; do
		echo "--cap-drop CAP_$name"
	done
}

# show_logs runs at the end of a step. The log of containerd is only of interest after a failure.
show_logs() {
	[ $? = 0 ] || cat /tmp/containerd.log
	cat /tmp/podcount.log 2>/dev/null || true
}
