# A node takes the image from the archive, and can run it.
. /steps/lib.sh

start_containerd
ctr -n k8s.io images import "$unpacked/$RELEASE-image.tar"
ctr -n k8s.io images ls -q | grep -qxF "$image" || fail "there is no $image, but: $(ctr -n k8s.io images ls -q)"

# The image itself says what runs, and as whom.
ctr -n k8s.io containers create "$image" settings
ctr -n k8s.io containers info settings | tr -d ' \n\t' >/tmp/settings
grep -qF '"args":["/podcount"]' /tmp/settings || fail "the image does not run /podcount: $(cat /tmp/settings)"
grep -qF '"user":{"uid":65532,"gid":65532' /tmp/settings || fail "the user is not 65532: $(cat /tmp/settings)"

run_image version -version >/tmp/version
cat /tmp/version
grep -qF "$VERSION" /tmp/version || fail "-version does not say $VERSION"

run_image source -source >/tmp/source.tar
tar tf /tmp/source.tar >/tmp/source
grep -qE '(^|/)main\.go$' /tmp/source || fail "-source has no main.go, but: $(cat /tmp/source)"
echo "-source has $(wc -l </tmp/source) files"

# It has the manifests of the archive, apart from comments.
without_comments() { grep -vE '^ *#' "$1"; }
for part in podcount policy; do
	run_image manifest "-manifest=$part" -image "$image" >/tmp/manifest
	without_comments /tmp/manifest >/tmp/printed
	without_comments "$unpacked/manifests/$part.yaml" >/tmp/carried
	cmp /tmp/printed /tmp/carried || fail "-manifest=$part prints something else than the archive has"
done
