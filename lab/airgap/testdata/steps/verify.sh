# The archive is what its maintainers have made. Whatever somebody else has changed on the way is noticed.
. /steps/lib.sh

# verify ARCHIVE SIGNERS SIGNATURE has the commands that docs/approve/releases.md gives, in a process of its own.
verify() (
	cd "$(dirname "$1")" || exit 1
	if [ -f "$2" ]; then
		ssh-keygen -Y verify -f "$2" -I podcount -n podcount-release -s "$3" <"$1" || exit 1
	fi
	tar xf "$1" || exit 1
	cd "$RELEASE" || exit 1
	sha256sum -c SHA256SUMS || exit 1
)

archive=/carried/$RELEASE.tar
verify "$archive" /carried/allowed_signers "$archive.sig"
echo "$(find "$unpacked" -type f | wc -l) files, of which $(wc -l <"$unpacked/SHA256SUMS") have a sum"

# One byte of a file is changed.
mkdir /tmp/changed
changed=/tmp/changed/$RELEASE.tar
cp "$archive" "$changed"
byte=x
[ "$(dd if="$changed" bs=1 skip=5000000 count=1 2>/dev/null)" != x ] || byte=y
printf $byte | dd of="$changed" bs=1 seek=5000000 conv=notrunc 2>/dev/null
must_fail 'FAILED' verify "$changed" /none /none

if [ ! -f /carried/allowed_signers ]; then
	echo 'there are no SIGNERS, so no signature was verified'
	exit
fi
must_fail 'incorrect signature' verify "$changed" /carried/allowed_signers "$archive.sig"

# It is signed again, with the key of somebody else.
ssh-keygen -q -t ed25519 -N '' -f /tmp/other
ssh-keygen -q -Y sign -n podcount-release -f /tmp/other <"$changed" >"$changed.sig"
must_fail 'Could not verify signature' verify "$changed" /carried/allowed_signers "$changed.sig"
echo "podcount $(cat /tmp/other.pub)" >/tmp/other_signers
cp "$archive" "$changed"
ssh-keygen -q -Y sign -n podcount-release -f /tmp/other <"$changed" >"$changed.sig"
verify "$changed" /tmp/other_signers "$changed.sig" >/dev/null ||
	fail 'the signature with the other key has a mistake of its own'
