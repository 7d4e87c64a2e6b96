# The archive is what its maintainers have made. Whatever somebody else has changed on the way is noticed.
. /steps/lib.sh

# verify DIRECTORY SIGNERS has the commands that docs/releases.md gives.
verify() {
	cd "$1" || exit 1
	if [ -f "$2" ]; then
		ssh-keygen -Y verify -f "$2" -I podcount -n podcount-release -s SHA256SUMS.sig <SHA256SUMS || exit 1
	fi
	sha256sum -c SHA256SUMS || exit 1
}

# try_verify runs verify in a process of its own, so that it can fail.
try_verify() { (verify "$@"); }

cd /carried
tar xf "$RELEASE.tar"
if [ -f "$unpacked/SHA256SUMS.sig" ] && [ ! -f allowed_signers ]; then
	fail 'the release is signed: use make airgap RELEASE=FILE SIGNERS=FILE'
fi
verify "$unpacked" /carried/allowed_signers

# No file is left out of the sums.
cd "$unpacked"
find . -type f ! -name 'SHA256SUMS*' | sed 's#^\./##' | sort >/tmp/files
sed 's/^[^ ]* .//' SHA256SUMS | sort | cmp -s - /tmp/files || fail 'SHA256SUMS does not name the files of the archive'
echo "$(wc -l </tmp/files) files are as their sums say"

# One byte of a file is changed.
cp -r "$unpacked" /tmp/changed
byte=x
[ "$(dd if="$RELEASE-image.tar" bs=1 skip=100000 count=1 2>/dev/null)" != x ] || byte=y
printf $byte | dd of="/tmp/changed/$RELEASE-image.tar" bs=1 seek=100000 conv=notrunc 2>/dev/null
must_fail "$RELEASE-image.tar: FAILED" try_verify /tmp/changed /carried/allowed_signers

if [ ! -f SHA256SUMS.sig ]; then
	echo 'the release is not signed, so nothing else can be verified'
	exit
fi

# Its sum is changed, too.
cd /tmp/changed
find . -type f ! -name 'SHA256SUMS*' | sed 's#^\./##' | sort | xargs sha256sum >SHA256SUMS
must_fail 'incorrect signature' try_verify /tmp/changed /carried/allowed_signers

# And the sums are signed again, with the key of somebody else.
ssh-keygen -q -t ed25519 -N '' -f /tmp/other
ssh-keygen -q -Y sign -n podcount-release -f /tmp/other <SHA256SUMS >SHA256SUMS.sig
must_fail 'Could not verify signature' try_verify /tmp/changed /carried/allowed_signers
echo "podcount $(cat /tmp/other.pub)" >/tmp/others
try_verify /tmp/changed /tmp/others >/dev/null || fail 'the signature with the other key has a mistake of its own'
