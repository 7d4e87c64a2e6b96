# Somebody who may do everything installs podcount from the manifests of the archive.
. /steps/lib.sh

kubectl create -f /steps/cluster.yaml
kubectl apply -f "$unpacked/manifests/podcount.yaml" -f "$unpacked/manifests/policy.yaml"
named=$(kubectl -n kube-system get deployment podcount -o jsonpath='{.spec.template.spec.containers[0].image}')
[ "$named" = "$image" ] || fail "the Deployment has the image $named"
