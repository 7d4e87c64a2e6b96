# The cluster is again as it was. The steps are those under "Uninstall" in docs/run/install.md.
. /steps/lib.sh

kubectl delete --ignore-not-found -f "$unpacked/manifests/podcount.yaml" -f "$unpacked/manifests/policy.yaml"
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
armv7l) arch=arm ;;
*) arch=$(uname -m) ;;
esac
"$unpacked/$RELEASE-linux-$arch" -prune
[ -z "$(kubectl get nodes -l hopegi/pod-count -o name)" ] || fail '-prune left labels'
kubectl -n default delete events --field-selector source=podcount
kubectl delete --ignore-not-found --grace-period=0 --force -f /steps/cluster.yaml
kubectl -n default delete --ignore-not-found --grace-period=0 --force pod airgap-3
