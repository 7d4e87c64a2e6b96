# There is no network here: only the loopback, and on it nothing but the API server, if there is one.
. /steps/lib.sh

[ "$(ls /sys/class/net)" = lo ] || fail "there are other interfaces: $(ls /sys/class/net)"
[ -z "$(ip route)" ] || fail "there are routes: $(ip route)"
must_fail 'Network is unreachable' nc -w 2 192.0.2.1 443

listening=$(netstat -ltn | awk '/LISTEN/ { print $4 }')
[ "${listening##*:}" = "${API_PORT:-}" ] || fail "these addresses listen: $listening"
echo "the only interface is lo; what listens there: ${listening:-nothing}"

echo 'what is here, besides the file systems of the kernel:'
find / -xdev -type f | sort
