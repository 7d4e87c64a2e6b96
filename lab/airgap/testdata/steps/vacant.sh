# Nothing is there that the next steps would overwrite, and that the last one would delete.
. /steps/lib.sh

kubectl auth can-i '*' '*' --all-namespaces >/dev/null || fail 'the user of KUBECONFIG may not do everything'
for object in deployment/podcount serviceaccount/podcount lease/podcount; do
	must_fail 'NotFound' kubectl -n kube-system get "$object"
done
must_fail 'NotFound' kubectl get clusterrole podcount
must_fail 'NotFound' kubectl get node airgap-control-plane
labelled=$(kubectl get nodes -l hopegi/pod-count -o name)
[ -z "$labelled" ] || fail "these nodes have podcount's label: $labelled"
